"""Types of the response bodies about schedules, and functions that fill them from the store's rows."""

from __future__ import annotations

import msgspec

from tidegate.policy.ticks import PreviewedTick, describe
from tidegate.store.schedule_rows import ScheduleRow, TickRow
from tidegate.web.schemas import Priority


class TickOut(msgspec.Struct):
    """The outcome of one tick of a schedule, or of several missed ticks."""

    planned_at: float
    """The planned moment of the tick; for a run by hand, the moment of the request."""
    until_at: float
    """The planned moment of the last of several missed ticks; otherwise the same as `planned_at`."""
    ticks: int
    """How many ticks this value stands for."""
    outcome: str
    """`fired`, `queued`, `skipped` or `missed`."""
    reason: str
    """Why the tick did not fire in time: `late`, `by hand`, `overlap`, `too late`, `catch-up`, `limit`,
    `window`, `paused`, `removed`; empty if it did."""
    decided_at: float
    task_id: str | None
    """The task of a fired tick."""


class ScheduleOut(msgspec.Struct):
    """A schedule."""

    name: str
    application: str | None
    """The application whose code declares it; null if a person added it."""
    when: str
    """Its rule: five fields of cron, or an interval such as `every 30s`."""
    timezone: str
    description: str
    """A description of `when` for people."""
    catch_up: str
    catch_up_limit: int
    catch_up_window_seconds: float
    overlap: str
    not_later_than_seconds: float | None
    function: str
    args: msgspec.Raw
    """The arguments of each task, as they are stored."""
    queue: str
    priority: Priority
    tenant: str | None
    next_at: float | None
    """The moment of its next tick; null while the schedule is paused."""
    paused_at: float | None
    changed_at: float
    last_tick: TickOut | None


class SchedulePage(msgspec.Struct):
    """One page of schedules, by name."""

    schedules: list[ScheduleOut]
    next: str | None
    """`after` for the next page; null on the last."""


class TicksOut(msgspec.Struct):
    """One page of the ticks of a schedule, the newest first."""

    ticks: list[TickOut]
    next: float | None
    """`before` for the next page; null on the last."""


class PlannedTickOut(msgspec.Struct):
    """A future tick of a schedule."""

    at: float
    local: str
    """The same moment in the schedule's time zone, ISO 8601."""
    mark: str
    """How a change of the clocks affects the tick; empty if it does not."""


class PreviewOut(msgspec.Struct):
    """The next ticks of a schedule."""

    ticks: list[PlannedTickOut]


class ScheduleRun(msgspec.Struct):
    """A task that a person's request enqueued."""

    name: str
    task_id: str
    location: str
    """The path of the task's status."""


def to_tick_out(row: TickRow) -> TickOut:
    """Return a tick as the API shows it."""
    return TickOut(
        row.at, row.until_at, row.ticks, row.outcome.value, row.reason, row.decided_at, row.task_id
    )


def to_schedule_out(row: ScheduleRow) -> ScheduleOut:
    """Return a schedule as the API shows it."""
    rule, task = row.rule, row.task
    return ScheduleOut(
        name=row.name,
        application=row.application or None,
        when=rule.expression,
        timezone=rule.timezone,
        description=describe(rule),
        catch_up=rule.catch_up.value,
        catch_up_limit=rule.catch_up_limit,
        catch_up_window_seconds=rule.catch_up_window,
        overlap=rule.overlap.value,
        not_later_than_seconds=rule.not_later_than,
        function=task.function,
        args=msgspec.Raw(task.args.encode()),
        queue=task.queue,
        priority=task.priority.word,
        tenant=task.tenant or None,
        next_at=row.next_at,
        paused_at=row.paused_at,
        changed_at=row.changed_at,
        last_tick=None if row.tick is None else to_tick_out(row.tick),
    )


def to_planned_tick_out(tick: PreviewedTick) -> PlannedTickOut:
    """Return a planned tick as the API shows it."""
    return PlannedTickOut(tick.at, tick.local.isoformat(), tick.mark)
