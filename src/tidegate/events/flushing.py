"""Makes exporters send their data before a process ends without running `atexit` hooks."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Flusher:
    """The exporters of one process that send in the background. Pool and child processes end abruptly."""

    def __init__(self) -> None:
        self._exporters: list[Callable[[], object]] = []
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()

    def add(self, flush: Callable[[], object]) -> None:
        """Add a function that sends the data of an exporter. The function may block, and may raise."""
        self._exporters.append(flush)

    def flush(self, seconds: float) -> None:
        """Send everything, and wait for at most this many seconds."""
        if self._exporters:
            thread = threading.Thread(target=self._flush, name="tidegate-flush", daemon=True)
            thread.start()
            thread.join(seconds)

    def flush_soon(self) -> None:
        """Send everything in the background, from a permanent thread. Returns at once."""
        if not self._exporters:
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="tidegate-flush", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self._flush()

    def _flush(self) -> None:
        for flush in self._exporters:
            try:
                flush()
            except Exception:  # noqa: S112 - exporters log their own errors
                continue
