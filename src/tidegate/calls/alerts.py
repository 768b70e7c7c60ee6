"""Logs a parked gate once, although many calls meet it."""

from __future__ import annotations

from collections.abc import Callable

REPEAT_SECONDS = 900.0
"""A gate that stays parked for the same reason is logged again after this time."""


class ParkAlerts:
    """Remembers which parked gates this process has already logged.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reported: dict[str, tuple[str, float]] = {}

    def is_due(self, gate: str, reason: str) -> bool:
        """Return whether the parked gate must be logged now. If so, it counts as logged."""
        now = self._clock()
        before, at = self._reported.get(gate, ("", -REPEAT_SECONDS))
        if before == reason and now - at < REPEAT_SECONDS:
            return False
        self._reported[gate] = (reason, now)
        return True

    def forget(self, gate: str) -> None:
        """Forget a gate that is flowing again, so that its next park is logged immediately."""
        self._reported.pop(gate, None)
