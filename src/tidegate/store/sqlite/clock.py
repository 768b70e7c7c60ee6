"""The store's clock on SQLite: this host's wall clock, which never goes backwards here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class HighWaterClock:
    """Returns seconds since the epoch, never less than before in this process.

    The monotonic clock is the reference. If the wall clock is set back, nothing changes; if it is set
    forward, or the host slept, this clock follows at once. All processes of a SQLite store run on one host
    and share its clock.

    Args:
        wall: Returns seconds since the epoch; may jump.
        steady: Returns seconds since any fixed moment; never goes backwards.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._anchor = wall() - steady()
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the current time."""
        with self._lock:
            time_now = self._anchor + self._steady()
            wall = self._wall()
            if wall > time_now:
                self._anchor += wall - time_now
                time_now = wall
            return time_now
