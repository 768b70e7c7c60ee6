"""Schedules: the changes by people and applications, and the lists. `fire_schedules` is in another module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tidegate.domain.schedule import TickOutcome, TickReason
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.rows import NewTask
from tidegate.store.schedule_rows import (
    DeclaredSet,
    NewSchedule,
    ScheduleAnswer,
    ScheduleRow,
    TickRow,
    rule_from_json,
    rule_to_json,
    task_to_json,
)


class StoredSchedule(NamedTuple):
    """The columns of a schedule that a change reads before it writes."""

    name: str
    application: str
    rule: str
    task: str
    next_at: float | None
    paused_at: float | None
    removed_at: float | None


def build_schedule_row(row: Sequence[Any], tick: TickRow | None = None) -> ScheduleRow:
    """Return a schedule from the first columns of a statement, with its latest tick."""
    name, application, rule, task, next_at, revision, changed_at, paused_at = row[:8]
    return ScheduleRow(name, application, rule, task, next_at, revision, changed_at, paused_at, tick)


def build_tick_row(db: Session, row: Sequence[Any]) -> TickRow:
    """Return a tick from its columns."""
    schedule, at, until_at, ticks, outcome, reason, decided_at, task_id = row
    found = None if task_id is None else db.text(task_id)
    return TickRow(schedule, at, until_at, ticks, TickOutcome(outcome), reason, decided_at, found)


# --- lists -----------------------------------------------------------------------------------------------


async def list_schedules(db: Session, *, after: str = "", limit: int = 100) -> list[ScheduleRow]:
    """Return at most `limit` schedules in the order of their names, starting after the name `after`."""
    rows = await db.rows(db.sql("schedules")["list"], storable(after), limit)
    return [_with_tick(db, row) for row in rows]


async def get_schedule(db: Session, name: str) -> ScheduleRow | None:
    """Return the schedule with this name; None if it does not exist."""
    row = await db.row(db.sql("schedules")["get"], storable(name))
    return None if row is None else _with_tick(db, row)


def _with_tick(db: Session, row: Sequence[Any]) -> ScheduleRow:
    columns = tuple(row)
    return build_schedule_row(columns, None if columns[8] is None else build_tick_row(db, columns[8:]))


async def list_ticks(
    db: Session, schedule: str, *, before_at: float | None = None, limit: int = 50
) -> list[TickRow]:
    """Return at most `limit` ticks of a schedule, newest first, planned before `before_at`."""
    rows = await db.rows(db.sql("schedules")["ticks"], storable(schedule), before_at, limit)
    return [build_tick_row(db, row) for row in rows]


async def list_unfired_ticks(db: Session, *, since: float, limit: int = 100) -> list[TickRow]:
    """Return at most `limit` missed and skipped ticks that were decided at `since` or later, oldest first."""
    rows = await db.rows(db.sql("schedules")["unfired"], since, limit)
    return [build_tick_row(db, row) for row in rows]


async def list_last_successes(db: Session) -> dict[str, float]:
    """Return for each schedule when the latest successful task of its last 20 ticks ended."""
    return dict(map(tuple, await db.rows(db.sql("schedules")["last_successes"])))


# --- changes by people -----------------------------------------------------------------------------------


async def add_schedule(db: Session, schedule: NewSchedule) -> ScheduleAnswer:
    """Store a person's schedule, unless another schedule has its name."""
    found = await _locked(db, schedule.name)
    rule, task = rule_to_json(schedule.rule), task_to_json(schedule.task)
    if found is not None and found.removed_at is None:
        is_same = (found.application, found.rule, found.task) == ("", rule, task)
        return ScheduleAnswer.DONE if is_same else ScheduleAnswer.EXISTS
    if found is not None:
        await db.run(db.sql("schedules")["delete"], schedule.name)
    await _put(db, await db.now(), "", [(schedule, schedule.next_at)])
    return ScheduleAnswer.DONE


async def edit_schedule(db: Session, schedule: NewSchedule) -> ScheduleAnswer:
    """Replace a person's schedule."""
    found = await _locked(db, schedule.name)
    if (refused := _refuse_change(found)) is not None:
        return refused
    assert found is not None
    await _put(db, await db.now(), "", [(schedule, _next_at(found, schedule))])
    return ScheduleAnswer.DONE


async def remove_schedule(db: Session, name: str) -> ScheduleAnswer:
    """Delete a person's schedule."""
    if (refused := _refuse_change(await _locked(db, name))) is not None:
        return refused
    sql = db.sql("schedules")
    await db.run_each(sql["skip_queued"], [(name,)], TickReason.REMOVED.value, await db.now())
    await db.run(sql["delete"], name)
    return ScheduleAnswer.DONE


async def pause_schedule(db: Session, name: str) -> ScheduleAnswer:
    """Pause a schedule."""
    found = await _locked(db, name)
    if found is None or found.removed_at is not None:
        return ScheduleAnswer.UNKNOWN
    sql, now = db.sql("schedules"), await db.now()
    await db.run(sql["pause"], name, now)
    await db.run_each(sql["skip_queued"], [(name,)], TickReason.PAUSED.value, now)
    return ScheduleAnswer.DONE


async def resume_schedule(db: Session, name: str, next_at: float | None) -> ScheduleAnswer:
    """Resume a paused schedule."""
    found = await _locked(db, name)
    if found is None or found.removed_at is not None:
        return ScheduleAnswer.UNKNOWN
    if found.paused_at is not None:
        await db.run(db.sql("schedules")["resume"], name, next_at)
    return ScheduleAnswer.DONE


async def record_run(db: Session, name: str, task: NewTask, *, counts: bool) -> ScheduleAnswer | None:
    """Record a run by hand; return None if it is recorded already.

    After `DONE` the caller enqueues the task.
    """
    found = await _locked(db, name)
    if found is None or found.removed_at is not None:
        return ScheduleAnswer.UNKNOWN
    sql, now = db.sql("schedules"), await db.now()
    recorded = (name, now, TickReason.BY_HAND.value, db.id(task.id), int(counts))
    if await db.value(sql["record_run"], *recorded) is None:
        return None
    await db.run(sql["touch"], name)
    return ScheduleAnswer.DONE


async def _locked(db: Session, name: str) -> StoredSchedule | None:
    """Return a schedule, even if it was removed.

    No other process changes schedules until the transaction ends.
    """
    sql = db.sql("schedules")
    await db.row(sql["lock"])
    row = await db.row(sql["one"], storable(name))
    return None if row is None else StoredSchedule(*row)


def _refuse_change(found: StoredSchedule | None) -> ScheduleAnswer | None:
    """Return why a person cannot change or remove this schedule; None if they can."""
    if found is None or found.removed_at is not None:
        return ScheduleAnswer.UNKNOWN
    return ScheduleAnswer.DECLARED if found.application else None


# --- declarations ----------------------------------------------------------------------------------------


async def generation_in_force(db: Session, application: str, fingerprint: str) -> int | None:
    """Return the generation of this set if the set is in force, otherwise None."""
    row = await db.row(db.sql("declare_schedules")["sets"], application)
    return None if row is None or row[0] != fingerprint else row[1]


async def declare_schedules(
    db: Session, application: str, fingerprint: str, schedules: Sequence[NewSchedule], *, grace_seconds: float
) -> DeclaredSet:
    """Store the set of schedules that an application declares, unless a newer set is in use."""
    sql = db.sql("declare_schedules")
    await db.row(db.sql("schedules")["lock"])
    now = await db.now()
    sets = [tuple(row) for row in await db.rows(sql["sets"], application)]
    generation = sets[0][1] if sets else 0
    if sets and sets[0][0] == fingerprint:
        return DeclaredSet(is_in_force=True, generation=generation)
    if any(known == fingerprint for known, *_ in sets):
        newest, _, declared_at = sets[0]
        is_used = bool(await db.value(sql["is_used"], now, newest))
        if is_used or now - declared_at <= grace_seconds:
            return DeclaredSet(is_in_force=False, generation=generation)
    await db.run(sql["bring_into_force"], application, fingerprint, generation + 1, now)
    return await _apply_set(db, now, application, generation + 1, schedules)


async def _apply_set(
    db: Session, now: float, application: str, generation: int, schedules: Sequence[NewSchedule]
) -> DeclaredSet:
    sql = db.sql("declare_schedules")
    names = msgspec.json.encode([schedule.name for schedule in schedules]).decode()
    rows = await db.rows(sql["stored"], application, names)
    stored = {found.name: found for found in (StoredSchedule(*row) for row in rows)}
    taken, changed = [], []
    for schedule in schedules:
        found = stored.pop(schedule.name, None)
        if found is not None and not found.application and found.removed_at is None:
            taken.append(schedule.name)
        elif found is None or not _is_equal(found, application, schedule):
            changed.append((schedule, schedule.next_at if found is None else _next_at(found, schedule)))
    removed = [name for name, found in stored.items() if found.removed_at is None]
    await _put(db, now, application, changed)
    await db.run_each(sql["retire"], [(name,) for name in removed], now)
    await db.run_each(
        db.sql("schedules")["skip_queued"], [(name,) for name in removed], TickReason.REMOVED.value, now
    )
    names_changed = tuple(schedule.name for schedule, _ in changed)
    return DeclaredSet(
        is_in_force=True, generation=generation, changed=(*names_changed, *removed), taken=tuple(taken)
    )


async def _put(
    db: Session, now: float, application: str, schedules: Sequence[tuple[NewSchedule, float | None]]
) -> None:
    """Insert or replace schedules, each with its next tick."""
    rows = [
        (schedule.name, application, rule_to_json(schedule.rule), task_to_json(schedule.task), next_at)
        for schedule, next_at in schedules
    ]
    await db.run_each(db.sql("declare_schedules")["put"], rows, now)


def _is_equal(found: StoredSchedule, application: str, schedule: NewSchedule) -> bool:
    return (found.application, found.rule, found.task, found.removed_at) == (
        application,
        rule_to_json(schedule.rule),
        task_to_json(schedule.task),
        None,
    )


def _next_at(found: StoredSchedule, schedule: NewSchedule) -> float | None:
    """Return the next tick of a schedule after a change: the old one if it ticks at the same moments."""
    if found.paused_at is not None:
        return None
    is_running = found.removed_at is None and found.next_at is not None
    return found.next_at if is_running and _when(found.rule) == schedule.rule.when else schedule.next_at


def _when(rule_json: str) -> str | None:
    """Return the moments at which a stored rule ticks; None if a newer version stored it in another form."""
    try:
        return rule_from_json(rule_json).when
    except msgspec.DecodeError:
        return None
