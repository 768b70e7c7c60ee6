"""A thread that wakes every few milliseconds and notes when the machine did not let it."""

from __future__ import annotations

import threading
import time

from chaos.faults import ChaosFaultKind
from harness.faults import Fault

STALL_SECONDS = 0.2
_TICK_SECONDS = 0.02


class StallDetector:
    """Measures stalls of the machine itself, from entry to exit. Those above 200 ms are kept as faults."""

    def __init__(self) -> None:
        self.stalls: list[Fault] = []
        self._before = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="chaos ticker", daemon=True)

    def __enter__(self) -> StallDetector:
        self._before = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _measure(self) -> None:
        is_ending = False
        while not is_ending:
            is_ending = self._ending.wait(_TICK_SECONDS)
            now = time.monotonic()
            late = now - self._before - _TICK_SECONDS
            if late > STALL_SECONDS:
                ended_at = time.time()
                self.stalls.append(
                    Fault(ChaosFaultKind.STALL, "", ended_at - late, ended_at, what=f"for {late:.2f} s")
                )
            self._before = now
