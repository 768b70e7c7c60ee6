"""Finds, adds, changes, pauses and runs schedules for the command line, the HTTP API and `app.admin`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidegate.domain.readers import shown
from tidegate.domain.schedule import Overlap, ScheduledTask, ScheduleRule
from tidegate.errors import NotAcceptedError, UnknownScheduleError
from tidegate.operations.pauses import record
from tidegate.policy.ticks import PreviewedTick, next_tick, preview
from tidegate.schedule.options import changed_rule
from tidegate.schedule.scheduled_tasks import new_task
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask
from tidegate.store.schedule_rows import NewSchedule, ScheduleAnswer, ScheduleRow

_MOST_NAMED = 10
MOST_PREVIEWED = 1_000


async def find_schedule(store: Store, name: str) -> ScheduleRow:
    """Return the schedule of that name.

    Raises:
        UnknownScheduleError: No schedule of that name is stored.
    """
    row = await store.get_schedule(name)
    if row is None:
        raise await _unknown(store, name)
    return row


async def add_schedule(
    store: Store, name: str, rule: ScheduleRule, task: ScheduledTask, *, by: str = ""
) -> ScheduleRow:
    """Store a person's schedule. The first tick of the schedule is the next one from now.

    Safe to repeat with an equal schedule.

    Raises:
        NotAcceptedError: Another schedule has the name.
    """
    added = NewSchedule(name, rule, task, next_tick(rule, await store.now()))
    await _require(store, name, await store.add_schedule(added))
    await _record(store, by, "schedule added", name)
    return await find_schedule(store, name)


async def edit_schedule(
    store: Store,
    name: str,
    *,
    when: str | None,
    settings: Mapping[str, Any],
    task_fields: Mapping[str, Any],
    by: str = "",
) -> ScheduleRow:
    """Change a person's schedule. The change itself fires no tick.

    Args:
        store: Holds the schedule.
        name: The name of the schedule.
        when: Other moments; None: the present ones.
        settings: Settings of the rule to change.
        task_fields: Fields of `ScheduledTask` to change.
        by: Who changes the schedule, for the audit log; empty if the caller records the change.

    Raises:
        UnknownScheduleError: No schedule has that name.
        NotAcceptedError: An application declares the schedule.
        OptionError: A value is invalid.
    """
    row = await find_schedule(store, name)
    if row.application:
        raise _declared(name, row.application)
    rule = changed_rule(row.rule, when, settings)
    edited = NewSchedule(name, rule, replace(row.task, **task_fields), next_tick(rule, await store.now()))
    await _require(store, name, await store.edit_schedule(edited))
    await _record(store, by, "schedule changed", name)
    return await find_schedule(store, name)


async def remove_schedule(store: Store, name: str, *, by: str = "") -> None:
    """Delete a person's schedule; its tasks and the record of its ticks stay.

    Raises:
        UnknownScheduleError: No schedule has that name.
        NotAcceptedError: An application declares the schedule.
    """
    await _require(store, name, await store.remove_schedule(name))
    await _record(store, by, "schedule removed", name)


async def pause_schedule(store: Store, name: str, *, by: str = "") -> ScheduleRow:
    """Stop the ticks of a schedule until it is resumed.

    Raises:
        UnknownScheduleError: No schedule has that name.
    """
    await _require(store, name, await store.pause_schedule(name))
    await _record(store, by, "schedule paused", name)
    return await find_schedule(store, name)


async def resume_schedule(store: Store, name: str, *, by: str = "") -> ScheduleRow:
    """Let a paused schedule tick again, from its next regular tick on.

    Raises:
        UnknownScheduleError: No schedule has that name.
    """
    row = await find_schedule(store, name)
    next_at = next_tick(row.rule, await store.now())
    await _require(store, name, await store.resume_schedule(name, next_at))
    await _record(store, by, "schedule resumed", name)
    return await find_schedule(store, name)


async def run_schedule(store: Store, name: str, make_id: Callable[[], str], *, by: str = "") -> NewTask:
    """Enqueue the task of a schedule now; return it. The next tick stays as it is.

    Raises:
        UnknownScheduleError: No schedule has that name.
    """
    row = await find_schedule(store, name)
    task = new_task(name, row.task, task_id=make_id(), scheduled_for=await store.now())
    counts = row.rule.overlap is not Overlap.ALLOW
    await _require(store, name, await store.run_schedule(name, task, counts=counts))
    await _record(store, by, "schedule run", name, task.id)
    return task


async def preview_schedule(store: Store, name: str, count: int) -> list[PreviewedTick]:
    """Return the next ticks of a schedule, as if it were not paused.

    Raises:
        UnknownScheduleError: No schedule has that name.
    """
    row = await find_schedule(store, name)
    return preview(row.rule, await store.now(), min(count, MOST_PREVIEWED))


async def _record(store: Store, by: str, action: str, name: str, answer: str = "done") -> None:
    """Write a change to the audit log, unless the caller writes it."""
    if by:
        await record(store, by, action, name, answer)


async def _require(store: Store, name: str, answer: ScheduleAnswer) -> None:
    """Raise unless a change was made.

    Raises:
        UnknownScheduleError: No schedule has that name.
        NotAcceptedError: Another schedule has the name, or an application declares it.
    """
    if answer is ScheduleAnswer.UNKNOWN:
        raise await _unknown(store, name)
    if answer is ScheduleAnswer.EXISTS:
        raise NotAcceptedError(
            f"there is another schedule named {shown(name)}",
            fix="edit that one, remove it first, or choose another name",
        )
    if answer is ScheduleAnswer.DECLARED:
        raise _declared(name, (await find_schedule(store, name)).application)


def _declared(name: str, application: str) -> NotAcceptedError:
    return NotAcceptedError(
        f"the code of {application} declares the schedule {shown(name)}",
        fix="change or remove it there; to stop it now, pause it",
    )


async def _unknown(store: Store, name: str) -> UnknownScheduleError:
    names = [row.name for row in await store.list_schedules(limit=_MOST_NAMED + 1)]
    more = ", …" if len(names) > _MOST_NAMED else ""
    return UnknownScheduleError(
        f"no schedule is named {shown(name)}",
        fix=f"stored here: {', '.join(names[:_MOST_NAMED]) or 'none'}{more}",
        schedule=name,
    )
