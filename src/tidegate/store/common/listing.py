"""Pages of tasks, newest first."""

from __future__ import annotations

import heapq

from tidegate.domain.states import State
from tidegate.store import ids
from tidegate.store.common.reads import rows_of
from tidegate.store.common.session import Session
from tidegate.store.filters import filter_parameters, places_of
from tidegate.store.rows import TaskFilter, TaskRow


async def list_tasks(db: Session, which: TaskFilter, after: str | None, limit: int) -> list[TaskRow]:
    """Return tasks newest first (by id), `limit` at most, continuing after the id `after`."""
    start = (None if after is None else db.id(after)) or db.id(ids.AFTER_ALL)
    sql = db.sql("list_tasks")
    pages = [
        await db.column(sql[place], str(state), *filter_parameters(which), start, limit)
        for state in which.states or tuple(State)
        for place in places_of(state)
    ]
    newest = list(dict.fromkeys(heapq.merge(*pages, reverse=True)))[:limit]
    found = {row.id: row for row in await rows_of(db, newest)}
    return [found[db.text(task_id)] for task_id in newest]
