"""List pages of tasks, newest first."""

from __future__ import annotations

import heapq

from tidegate.domain.states import State
from tidegate.store.common import ids
from tidegate.store.common.filters import filter_parameters, statements_for
from tidegate.store.common.reads import rows_of
from tidegate.store.common.session import Session
from tidegate.store.rows import TaskFilter, TaskRow


async def list_tasks(db: Session, task_filter: TaskFilter, after: str | None, limit: int) -> list[TaskRow]:
    """Return at most `limit` tasks, newest first by id, starting after the id `after`."""
    start = (None if after is None else db.id(after)) or db.id(ids.AFTER_ALL)
    sql = db.sql("list_tasks")
    pages = [
        await db.column(sql[statement], str(state), *filter_parameters(task_filter), start, limit)
        for state in task_filter.states or tuple(State)
        for statement in statements_for(state)
    ]
    newest = list(dict.fromkeys(heapq.merge(*pages, reverse=True)))[:limit]
    found = {row.id: row for row in await rows_of(db, newest)}
    return [found[db.text(task_id)] for task_id in newest]
