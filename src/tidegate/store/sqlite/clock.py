"""The store's clock on SQLite: this host's wall clock, kept from going backwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class HighWaterClock:
    """Tell the time in seconds since the epoch, never less than told before in this process.

    Wall time is anchored on the monotonic clock: a wall clock set back changes nothing, one set forward
    (or a host that slept) is followed at once. Processes on one host share its clock; that is the one
    clock of a SQLite store.

    Args:
        wall: Seconds since the epoch; may jump.
        steady: Seconds since anything; never goes backwards.
    """

    def __init__(
        self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._anchor = wall() - steady()
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the present moment."""
        with self._lock:
            time_now = self._anchor + self._steady()
            wall = self._wall()
            if wall > time_now:
                self._anchor += wall - time_now
                time_now = wall
            return time_now
