"""The two time limits of a whole task, over all its runs. Both end it with the reason `deadline`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskLimit(StrEnum):
    """Which of the two; the value is its name in sentences."""

    TOTAL_TIMEOUT = "total timeout"
    """Counts from the first start; waits for an upstream are not counted."""
    DEADLINE = "deadline"
    """A moment. Nothing postpones it."""

    @property
    def fix(self) -> str:
        """What to change so that a task has more time."""
        if self is TaskLimit.TOTAL_TIMEOUT:
            return "raise total_timeout="
        return "give a later deadline="


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How many seconds each limit leaves to a task; infinite without that limit, below 0 once it is over."""

    total_timeout_seconds: float = float("inf")
    deadline_seconds: float = float("inf")

    @property
    def seconds(self) -> float:
        """Until the first of the two."""
        return min(self.total_timeout_seconds, self.deadline_seconds)

    @property
    def first(self) -> TaskLimit:
        """The limit that is reached first."""
        if self.deadline_seconds < self.total_timeout_seconds:
            return TaskLimit.DEADLINE
        return TaskLimit.TOTAL_TIMEOUT

    def after(self, seconds: float) -> TimeLeft:
        """Return what is left when this many seconds have passed."""
        return TimeLeft(self.total_timeout_seconds - seconds, self.deadline_seconds - seconds)
