"""Find the schedules that are due, and store the decisions about their ticks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from tidegate.domain.schedule import TickOutcome
from tidegate.domain.states import State
from tidegate.store.common.schedules import build_schedule_row
from tidegate.store.common.session import Session
from tidegate.store.rows import NewTask
from tidegate.store.schedule_rows import DueSchedule, Firing, UnfinishedTask


async def has_due(db: Session) -> bool:
    """Return whether any schedule has a tick that is due or waits."""
    return bool(await db.value(db.sql("list_due_schedules")["is_due"], db.at))


async def list_due_schedules(
    db: Session, *, after: tuple[float, str] | None = None, limit: int = 200
) -> list[DueSchedule]:
    """Return at most `limit` schedules with a due tick.

    The first page also has all schedules with a queued tick.
    """
    sql = db.sql("list_due_schedules")
    rows = await db.rows(sql["due"], db.at, *(after or (0.0, "")), limit)
    found = [build_schedule_row(tuple(row)) for row in rows]
    if after is None:
        found += [build_schedule_row(tuple(row)) for row in await db.rows(sql["waiting"], db.at)]
    queued: defaultdict[str, list[float]] = defaultdict(list)
    unfinished: defaultdict[str, list[UnfinishedTask]] = defaultdict(list)
    names = [(row.name,) for row in found]
    for name, at in await db.run_each(sql["queued"], names):
        queued[name].append(at)
    for name, _, task_id, state in await db.run_each(sql["open"], names):
        if state is not None:
            unfinished[name].append(UnfinishedTask(db.text(task_id), State(state)))
    return [DueSchedule(row, tuple(unfinished[row.name]), tuple(queued[row.name])) for row in found]


async def record_firings(db: Session, firings: Sequence[Firing]) -> list[NewTask]:
    """Store the decisions about ticks; return the tasks that the caller enqueues in the same transaction."""
    sql, now = db.sql("fire_schedules"), await db.now()
    by_name = {firing.name: firing for firing in sorted(firings, key=lambda firing: firing.name)}
    taken = await db.run_each(sql["take"], [(firing.name, firing.revision) for firing in by_name.values()])
    going = [by_name[name] for (name,) in taken]
    ticks = {(firing.name, fired.decided.at): fired for firing in going for fired in firing.ticks}
    await db.run_each(sql["close"], [(firing.name,) for firing in going])
    rows = [
        (
            name,
            at,
            fired.decided.until_at,
            fired.decided.ticks,
            fired.decided.outcome.value,
            fired.decided.reason,
            None if fired.task is None else db.id(fired.task.id),
            int(fired.counts),
        )
        for (name, at), fired in ticks.items()
    ]
    decided = await db.run_each(sql["decide"], rows, now)
    unfired: Counter[tuple[str, str]] = Counter()
    for name, at in decided:
        found = ticks[name, at].decided
        if found.outcome in (TickOutcome.MISSED, TickOutcome.SKIPPED):
            unfired[name, found.outcome.value] += found.ticks
    await db.run_each(sql["count_unfired"], [(*each, count) for each, count in unfired.items()])
    await db.run_each(sql["advance"], [(firing.name, firing.next_at) for firing in going])
    tasks = (ticks[name, at].task for name, at in decided)
    return [task for task in tasks if task is not None]
