"""The clock of a test: the real time, moved forward by each jump."""

from __future__ import annotations

import time


class KitClock:
    """Seconds since the epoch. It runs as the real clock does, and jumps forward on request."""

    def __init__(self) -> None:
        self.offset = 0.0
        """Seconds that all jumps together have added to the real time."""
        self._least = 0.0

    def __call__(self) -> float:
        """Return the current time. It never goes backwards."""
        now = time.time() + self.offset
        if now < self._least:
            return self._least
        self._least = now
        return now

    def monotonic(self) -> float:
        """Return monotonic seconds that jump with this clock."""
        return time.monotonic() + self.offset

    def jump(self, seconds: float) -> None:
        """Move forward by some seconds; not at all if they are negative."""
        self.offset += max(0.0, seconds)

    def jump_to(self, moment: float) -> None:
        """Move forward to a moment; not at all if it is over."""
        self.jump(moment - time.time() - self.offset)
        self._least = max(self._least, moment)
