"""Writes log lines from its own thread: a pipe that nobody reads loses log lines, but blocks nothing."""

from __future__ import annotations

import os
import queue
import select
import threading
import time
import weakref
from collections.abc import Callable

MAX_LINES = 10_000
"""At most this many lines wait to be written."""
MAX_BYTES = 4 * 1024 * 1024
"""At most this many bytes wait to be written."""
GATHER_SECONDS = 0.02
"""After each write the writer thread sleeps this long while lines gather. A new line does not wake it: waking
a thread would cost the logging thread more than the line itself."""
CLOSE_SECONDS = 1.0
"""How long an ending process waits until the last lines are written."""

_BATCH_BYTES = 32_768
_writers: weakref.WeakSet[LogLineWriter] = weakref.WeakSet()


class LogLineWriter:
    """Writes lines to a file descriptor in order. Drops and counts lines when its buffer is full.

    Calls of `put` must not overlap (a `logging.Handler` locks), but a signal handler may interrupt one.
    A forked child has no writer thread, so the caller of `put` writes there.

    Args:
        descriptor: The file descriptor. The descriptor may block, fail or be closed.
        dropped: Returns the line that reports how many lines were dropped.
        patience: Seconds that `put` may wait until a line is written, for a process that may end suddenly.
            After a wait that timed out, `put` does not wait again until all lines are written.
    """

    def __init__(self, descriptor: int, *, dropped: Callable[[int], bytes], patience: float = 0.0) -> None:
        self._descriptor = descriptor
        self._dropped_line = dropped
        self._patience = patience
        self._lines: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()
        self._taken_bytes = 0
        self._written_bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._late: threading.Event | None = None
        """Whether `put` may wait again: set once all lines are written after a timed-out wait."""
        self._is_direct = False
        """Whether there is no writer thread, so that the caller of `put` writes its line itself."""
        _writers.add(self)

    def put(self, lines: bytes) -> None:
        """Queue lines, with their line breaks, to be written soon. Never blocks longer than `patience`."""
        if self._thread is None and not self._is_direct:
            self._start()
        if self._is_direct:
            self._write(lines)
            return
        waiting = self._taken_bytes - self._written_bytes
        if self._lines.qsize() >= MAX_LINES or waiting + len(lines) > MAX_BYTES:
            self._dropped += lines.count(b"\n")
            return
        self._taken_bytes += len(lines)
        self._lines.put(lines)
        if self._patience and (self._late is None or self._late.is_set()):
            self._late = self._wait(self._patience)

    def close(self, within: float = CLOSE_SECONDS) -> None:
        """Wait at most this many seconds until all lines are written.

        Safe to repeat; `put` works afterwards.
        """
        if self._thread is not None and not self._is_direct:
            self._wait(within)

    def write_directly(self) -> None:
        """Make the caller of `put` write its line itself: a forked child has no writer thread."""
        self._is_direct = True

    def _wait(self, seconds: float) -> threading.Event | None:
        """Wait until all lines are written.

        On a timeout, return the event that is set once they are written.
        """
        written = threading.Event()
        self._lines.put(written)
        return None if written.wait(seconds) else written

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="tidegate log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self._is_direct = True
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            batch, size = [self._lines.get()], 0
            while size < _BATCH_BYTES and not self._lines.empty():
                batch.append(self._lines.get())
                size += len(batch[-1]) if isinstance(batch[-1], bytes) else 0
            data = b"".join(item for item in batch if isinstance(item, bytes))
            self._write(data)
            self._written_bytes += len(data)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(self._dropped_line(dropped))
            waits = [item for item in batch if isinstance(item, threading.Event)]
            for written in waits:
                written.set()
            if not waits:
                time.sleep(GATHER_SECONDS)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody made the descriptor non-blocking
                select.select([], [self._descriptor], [], 1.0)
            except OSError:  # the reader is gone
                return


def _on_fork() -> None:
    for writer in list(_writers):
        writer.write_directly()


os.register_at_fork(after_in_child=_on_fork)
