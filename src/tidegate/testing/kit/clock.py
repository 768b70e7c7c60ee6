"""The clock of a test: the real time, moved forward by each jump.

A test may replace `time.time`, by freezegun or time-machine, to give its own code `kit.now()`. This clock
does not follow: it would count the same jump twice.
"""

from __future__ import annotations

import time

MOST_DRIFT_SECONDS = 1.0
"""A `time.time` further than this from where it should be was replaced, or set."""


class KitClock:
    """Seconds since the epoch.

    The clock runs at the speed of the real clock, and jumps forward on request.
    """

    def __init__(self) -> None:
        self._lead = time.time() - _elapsed()
        self.offset = 0.0
        """Seconds that all jumps together have added to the real time."""
        self._least = 0.0

    def __call__(self) -> float:
        """Return the current time. It never goes backwards."""
        now = self._real_time() + self.offset
        if now < self._least:
            return self._least
        self._least = now
        return now

    def monotonic(self) -> float:
        """Return monotonic seconds that jump with this clock."""
        return _elapsed() + self.offset

    def jump(self, seconds: float) -> None:
        """Move forward by some seconds; not at all if they are negative."""
        self.offset += max(0.0, seconds)

    def jump_to(self, moment: float) -> None:
        """Move forward to a moment; not at all if it is over."""
        self.jump(moment - self._real_time() - self.offset)
        self._least = max(self._least, moment)

    def _real_time(self) -> float:
        now, expected = time.time(), self._lead + _elapsed()
        return now if abs(now - expected) < MOST_DRIFT_SECONDS else expected


def _elapsed() -> float:
    """Return monotonic seconds. Libraries that replace `time.monotonic` leave this clock alone."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
