"""The two time limits of a whole task, over all its runs.

Both limits end the task with the reason `deadline`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskLimit(StrEnum):
    """One of the two limits of the whole task. The value is its name in messages."""

    TOTAL_TIMEOUT = "total timeout"
    """Counts from the first start. Waits for an upstream do not count."""
    DEADLINE = "deadline"
    """A fixed time. Nothing postpones it."""

    @property
    def fix(self) -> str:
        """What to change to give a task more time."""
        if self is TaskLimit.TOTAL_TIMEOUT:
            return "raise total_timeout="
        return "give a later deadline="


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The seconds that each limit leaves to a task: infinite without that limit, below 0 once it is over."""

    total_timeout_seconds: float = float("inf")
    deadline_seconds: float = float("inf")

    @property
    def seconds(self) -> float:
        """The seconds until the first of the two limits."""
        return min(self.total_timeout_seconds, self.deadline_seconds)

    @property
    def first(self) -> TaskLimit:
        """The limit that is reached first."""
        if self.deadline_seconds < self.total_timeout_seconds:
            return TaskLimit.DEADLINE
        return TaskLimit.TOTAL_TIMEOUT

    def after(self, seconds: float) -> TimeLeft:
        """Return the time left after this many more seconds."""
        return TimeLeft(self.total_timeout_seconds - seconds, self.deadline_seconds - seconds)
