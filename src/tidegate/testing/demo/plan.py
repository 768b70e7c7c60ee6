"""What happens when, as numbers. Pure: made from the number of tasks and the time there is."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import OptionError

_SLOTS = 8
_REFERENCE_SECONDS = 60.0
_WORK_SHARE = 0.75
"""Part of the time in which the tasks would be done if nothing went wrong."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The demo's timetable. Moments count from when the first task is taken up; all in seconds."""

    tasks: int
    slots: int
    """Tasks the worker runs at once."""
    latency: float
    """The provider's mean time to an answer."""
    throttle_at: float
    """The provider cuts its limit."""
    throttle_seconds: float
    throttled_per_second: float
    """Calls it lets through meanwhile."""
    kill_at: float
    """The whole worker is killed."""
    outage_at: float
    """Nobody listens at the provider's port."""
    outage_seconds: float
    lease: float
    """Of the worker; its orphans are taken up again about twice as long after the kill."""
    give_up_after: float
    """If it is not over by then, something is wrong."""

    @classmethod
    def make(cls, tasks: int, seconds: float) -> DemoPlan:
        """Return the plan for so many tasks in about so many seconds.

        Raises:
            OptionError: No tasks, or less than 5 seconds.
        """
        if tasks < 1:
            raise OptionError(f"a demo of {tasks} tasks", fix="use 1 or more")
        if not 5 <= seconds <= 3600:
            raise OptionError(f"a demo of {seconds:g} seconds", fix="use 5 to 3600")
        scale = seconds / _REFERENCE_SECONDS
        slots = min(_SLOTS, max(2, tasks // 4))
        return cls(
            tasks=tasks,
            slots=slots,
            latency=min(10.0, _WORK_SHARE * seconds * slots / tasks),
            throttle_at=6 * scale,
            throttle_seconds=4 * scale,
            throttled_per_second=2.0,
            kill_at=20 * scale,
            outage_at=33 * scale,
            outage_seconds=4 * scale,
            lease=min(2.0, max(1.0, 4 * scale)),
            give_up_after=max(60.0, 2.5 * seconds),
        )
