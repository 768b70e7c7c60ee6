"""The timetable of the demo, computed from the number of tasks and the available time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import OptionError

_SLOTS = 8
_REFERENCE_SECONDS = 60.0
_WORK_SHARE = 0.75
"""Part of the time that the tasks would take without faults."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The demo's timetable, in seconds. Times count from the claim of the first task."""

    tasks: int
    slots: int
    """How many tasks the worker runs at once."""
    latency: float
    """The provider's mean time to respond."""
    throttle_at: float
    """When the provider lowers its limit."""
    throttle_seconds: float
    throttled_per_second: float
    """Calls per second that it allows during that time."""
    kill_at: float
    """When the whole worker is killed."""
    outage_at: float
    """When nothing listens on the provider's port."""
    outage_seconds: float
    lease: float
    """The worker's lease. The orphans of a killed worker are requeued about twice this time after the
    kill."""
    give_up_after: float
    """When the demo gives up, because something is wrong."""

    @classmethod
    def make(cls, tasks: int, seconds: float) -> DemoPlan:
        """Return the plan for this many tasks in about this many seconds.

        Raises:
            OptionError: `tasks` is below 1, or `seconds` is not between 5 and 3600.
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
