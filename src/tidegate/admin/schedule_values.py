"""What `app.admin.schedules` returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.schedule import CatchUp, Overlap, TickOutcome
from tidegate.domain.spec import Priority
from tidegate.policy.ticks import PreviewedTick, describe
from tidegate.store.schedule_rows import ScheduleRow, TickRow


@dataclass(frozen=True, slots=True)
class TickStatus:
    """The outcome of one tick of a schedule, or of several missed ticks."""

    schedule: str
    planned_at: datetime
    """The planned moment of the tick; for a run by hand, the moment of the request."""
    until_at: datetime
    """The planned moment of the last of several missed ticks; otherwise the same as `planned_at`."""
    ticks: int
    """How many ticks this value stands for."""
    outcome: TickOutcome
    reason: str
    """Why the tick did not fire in time, a value of `TickReason`; empty if it did."""
    decided_at: datetime
    task_id: str | None
    """The task of a fired tick."""


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule: when it ticks, what it enqueues, and its latest tick."""

    name: str
    application: str | None
    """The application whose code declares it; None if a person added it."""
    when: str
    """Its rule: five fields of cron, or an interval such as `every 30s`."""
    timezone: str
    description: str
    """A description of `when` for people."""
    catch_up: CatchUp
    catch_up_limit: int
    catch_up_window_seconds: float
    overlap: Overlap
    not_later_than_seconds: float | None
    function: str
    queue: str
    priority: Priority
    tenant: str | None
    next_at: datetime | None
    """The moment of its next tick; None while the schedule is paused."""
    paused_at: datetime | None
    changed_at: datetime
    last_tick: TickStatus | None


@dataclass(frozen=True, slots=True)
class PlannedTick:
    """A future tick of a schedule."""

    at: datetime
    """The moment in UTC."""
    local: datetime
    """The moment in the schedule's time zone."""
    mark: str
    """How a change of the clocks affects the tick; empty if it does not."""


def tick_status(row: TickRow) -> TickStatus:
    """Return the public form of a tick."""
    return TickStatus(
        schedule=row.schedule,
        planned_at=to_datetime(row.at),
        until_at=to_datetime(row.until_at),
        ticks=row.ticks,
        outcome=row.outcome,
        reason=row.reason,
        decided_at=to_datetime(row.decided_at),
        task_id=row.task_id,
    )


def schedule_status(row: ScheduleRow) -> ScheduleStatus:
    """Return the public form of a schedule."""
    rule, task = row.rule, row.task
    return ScheduleStatus(
        name=row.name,
        application=row.application or None,
        when=rule.expression,
        timezone=rule.timezone,
        description=describe(rule),
        catch_up=rule.catch_up,
        catch_up_limit=rule.catch_up_limit,
        catch_up_window_seconds=rule.catch_up_window,
        overlap=rule.overlap,
        not_later_than_seconds=rule.not_later_than,
        function=task.function,
        queue=task.queue,
        priority=task.priority,
        tenant=task.tenant or None,
        next_at=to_datetime_or_none(row.next_at),
        paused_at=to_datetime_or_none(row.paused_at),
        changed_at=to_datetime(row.changed_at),
        last_tick=None if row.tick is None else tick_status(row.tick),
    )


def planned_tick(tick: PreviewedTick) -> PlannedTick:
    """Return the public form of a future tick."""
    return PlannedTick(to_datetime(tick.at), tick.local, tick.mark)
