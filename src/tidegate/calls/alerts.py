"""Which parked gates have been reported: several calls meet the same closed gate, one line reports it."""

from __future__ import annotations

from collections.abc import Callable

REPEAT_SECONDS = 900.0
"""A gate that is still parked for the same reason is reported again after so long."""


class ParkAlerts:
    """Remembers what this process has reported.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reported: dict[str, tuple[str, float]] = {}

    def is_due(self, gate: str, reason: str) -> bool:
        """Return whether the park of a gate is to be reported now, and count it as reported."""
        now = self._clock()
        before, at = self._reported.get(gate, ("", -REPEAT_SECONDS))
        if before == reason and now - at < REPEAT_SECONDS:
            return False
        self._reported[gate] = (reason, now)
        return True

    def forget(self, gate: str) -> None:
        """Forget a gate that flows: its next park is news."""
        self._reported.pop(gate, None)
