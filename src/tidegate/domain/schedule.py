"""The values of schedules: the rule of one, the task that it enqueues, and what became of a tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.domain.final_hook import FinalHook
from tidegate.domain.spec import Priority

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
LABEL_PREFIX = "tidegate."
"""Labels that begin so belong to Tidegate: an enqueue cannot set them."""
SCHEDULE_LABEL = "tidegate.schedule"
"""The label of a task with the name of the schedule that enqueued it."""
SCHEDULED_FOR_LABEL = "tidegate.scheduled_for"
"""The label with the planned moment of its tick: ISO 8601, UTC."""


class CatchUp(StrEnum):
    """What happens to ticks that were missed because no process could fire them."""

    NONE = "none"
    """Missed ticks do not fire; they are recorded as missed."""
    ONE = "one"
    """The latest missed tick fires, late. The others are recorded as missed."""
    ALL = "all"
    """Each of them fires, in order, within the rule's limit and window."""


class Overlap(StrEnum):
    """What happens to a tick while a task of an earlier tick is not final.

    A task that is ready, running, scheduled, retrying, parked, held or suspended is not final.
    """

    SKIP = "skip"
    """The tick is skipped."""
    QUEUE = "queue"
    """The tick waits until the earlier task is final. At most one tick waits, or as many as `catch_up="all"`
    allows; further ticks are skipped."""
    ALLOW = "allow"
    """The tick fires."""


class TickOutcome(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    """Its task is enqueued."""
    QUEUED = "queued"
    """The tick waits until the task of an earlier tick is final."""
    SKIPPED = "skipped"
    """The rule says that it must not fire now."""
    MISSED = "missed"
    """Nothing fired it in time, and the rule does not make it up."""


class TickReason(StrEnum):
    """Why a tick did not fire in time."""

    LATE = "late"
    """The tick fired after it had been missed."""
    BY_HAND = "by hand"
    """A person ran the schedule. The run was requested by a person; it is not a tick of the rule."""
    OVERLAP = "overlap"
    """The task of an earlier tick was not final."""
    TOO_LATE = "too late"
    """`not_later_than` had passed."""
    CATCH_UP = "catch-up"
    """The tick was missed, and `catch_up` does not make it up."""
    LIMIT = "limit"
    """More ticks were missed than `catch_up_limit`; this is an older one of them."""
    WINDOW = "window"
    """The tick was missed longer ago than `catch_up_window`."""
    PAUSED = "paused"
    """The schedule was paused while the tick waited."""
    REMOVED = "removed"
    """The schedule was removed or changed while the tick waited."""


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """When a schedule fires. Either `cron` or `every_seconds` is set."""

    cron: str = ""
    """Five fields of cron, separated by one space."""
    every_seconds: int = 0
    """An interval in whole seconds, 1 or more. The ticks are the multiples of the interval since 1970."""
    timezone: str = "UTC"
    """A name of the IANA database; `UTC` for an interval."""
    catch_up: CatchUp = CatchUp.ONE
    catch_up_limit: int = 100
    """Most ticks that `catch_up="all"` makes up."""
    catch_up_window: float = 86_400.0
    """Seconds after which `catch_up="all"` no longer makes a tick up."""
    overlap: Overlap = Overlap.SKIP
    not_later_than: float | None = None
    """Seconds after which a tick is skipped instead of fired; None for no limit."""

    @property
    def when(self) -> str:
        """What decides the moments of its ticks: two rules with equal texts tick at the same moments."""
        return f"every {self.every_seconds}s" if self.every_seconds else f"{self.cron} {self.timezone}"

    @property
    def expression(self) -> str:
        """What a person writes: five fields of cron, or `every 30s`, `every 2h`."""
        if not self.every_seconds:
            return self.cron
        size, unit = next((size, unit) for size, unit in _UNITS if self.every_seconds % size == 0)
        return f"every {self.every_seconds // size}{unit}"

    @property
    def most_queued(self) -> int:
        """How many ticks may wait for the task of an earlier tick."""
        if self.overlap is not Overlap.QUEUE:
            return 0
        return self.catch_up_limit if self.catch_up is CatchUp.ALL else 1


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """The task that each tick of a schedule enqueues.

    The task is stored with the schedule, so that any process can fire a tick.
    """

    function: str
    queue: str
    args: str
    """Encoded arguments."""
    codec_tag: str
    fingerprint: str = ""
    """In hexadecimal digits."""
    priority: Priority = Priority.NORMAL
    upstream: str = ""
    tenant: str = ""
    deadline_seconds: float | None = None
    """From the enqueue."""
    timeout_seconds: float | None = None
    total_timeout_seconds: float | None = None
    """-1 for no limit: JSON has no infinity."""
    max_attempts: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    on_final: FinalHook | None = None
    """What its final state enqueues."""
