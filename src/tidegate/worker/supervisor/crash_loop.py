"""Detects and logs crash loops: processes of one pool that die again and again."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

log = logging.getLogger("tidegate.supervisor")

WINDOW_SECONDS = 300.0
"""How long a death counts."""
MAX_DEATHS = 5
"""Deaths within the window that make a crash loop."""
LOG_INTERVAL_SECONDS = 60.0
"""Shortest time between two log lines about one pool."""


class CrashLoopDetector:
    """Counts the deaths of one pool's processes.

    Args:
        pool: The pool's name.
        clock: Monotonic seconds.
    """

    def __init__(self, pool: str, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._deaths: deque[float] = deque()
        self._last = ""
        self._logged_at: float | None = None

    def record_death(self, why: str) -> None:
        """Count one death; log a crash loop, at most once a minute."""
        now = self._clock()
        self._deaths.append(now)
        self._last = why
        loop = self.describe()
        if loop and (self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_SECONDS):
            self._logged_at = now
            log.error("%s", loop)

    def describe(self) -> str:
        """Return a sentence about the crash loop; empty if there is none."""
        oldest = self._clock() - WINDOW_SECONDS
        while self._deaths and self._deaths[0] < oldest:
            self._deaths.popleft()
        if len(self._deaths) < MAX_DEATHS:
            return ""
        return (
            f"crash loop: pool {self._pool}: {len(self._deaths)} of its processes died within"
            f" {WINDOW_SECONDS / 60:g} minutes, the last one: {self._last}"
        )
