"""Read tasks: rows, pages of rows, results, payloads, history."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from tidegate.domain.retention import Data
from tidegate.domain.states import State
from tidegate.store.common import ids
from tidegate.store.common.filters import filter_parameters, statements_for
from tidegate.store.common.lookups import (
    StoredAttempt,
    StoredOtherRun,
    StoredOutcome,
    StoredTask,
    build_history,
    build_stored_result,
    task_row,
)
from tidegate.store.common.refusals import data_removed, task_not_found
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.rows import HistoryRow, StoredResult, TaskFilter, TaskRow
from tidegate.store.streams import StreamHead
from tidegate.store.task_tables import REMOVED


async def read_tasks(db: Session, task_ids: Sequence[str]) -> dict[str, TaskRow]:
    """Return the rows of the tasks that exist, by the id as the caller wrote it."""
    given = {stored: task_id for task_id in task_ids if (stored := db.id(task_id)) is not None}
    found = {row.id: row for row in await rows_of(db, list(given))}
    return {task_id: found[known] for stored, task_id in given.items() if (known := db.text(stored)) in found}


async def rows_of(db: Session, stored_ids: Sequence[Any]) -> list[TaskRow]:
    """Return the rows of these tasks, in no order."""
    if not stored_ids:
        return []
    rows = await db.rows(db.sql("read_tasks")["read"], db.array(stored_ids))
    return [task_row(row, db.text) for row in map(StoredTask._make, rows)]


async def list_tasks(
    db: Session, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
) -> list[TaskRow]:
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


async def find_ids(db: Session, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
    """Return the first task ids from `least` to `largest`, in order."""
    tenant = None if tenant is None else storable(tenant)
    statement = db.sql("find_ids")["find"]
    return [db.text(task) for task in await db.column(statement, db.id(least), db.id(largest), tenant, limit)]


async def get_result(db: Session, task_id: str) -> StoredResult | None:
    """Return the result of a final task; None if it is not final.

    Raises:
        TaskNotFoundError: There is no such task.
        DataRemovedError: Retention removed the result before the task.
    """
    row = await db.row(db.sql("get_result")["result"], db.id(task_id))
    if row is None:
        raise task_not_found(task_id)
    outcome = StoredOutcome._make(row)
    if outcome.codec_tag == REMOVED:
        raise data_removed(task_id, Data.RESULTS)
    return build_stored_result(outcome)


async def get_payload(db: Session, task_id: str) -> tuple[bytes, str]:
    """Return a task's encoded arguments and their codec tag.

    Raises:
        TaskNotFoundError: There is no such task.
        DataRemovedError: Retention removed the arguments before the task.
    """
    row = await db.row(db.sql("get_payload")["payload"], db.id(task_id))
    if row is None and await read_tasks(db, [task_id]):
        raise data_removed(task_id, Data.PAYLOADS)
    if row is None:
        raise task_not_found(task_id)
    args, codec_tag = row
    return args, codec_tag


async def get_history(db: Session, task_id: str) -> list[HistoryRow]:
    """Return every run and action of a task, oldest first; empty if there is no such task."""
    sql, task = db.sql("get_history"), db.id(task_id)
    enqueued_at = await db.value(sql["enqueued"], task)
    if enqueued_at is None:
        return []
    return build_history(
        enqueued_at,
        attempts=map(StoredAttempt._make, await db.rows(sql["attempts"], task)),
        other_runs=map(StoredOtherRun._make, await db.rows(sql["other_runs"], task)),
        actions=await db.rows(sql["actions"], task),
    )


async def read_stream_heads(db: Session, task_ids: Sequence[str]) -> dict[str, StreamHead]:
    """Return the state of each task that exists and the last number of its stream."""
    known = [task for task in map(db.id, dict.fromkeys(task_ids)) if task is not None]
    if not known:
        return {}
    rows = await db.rows(db.sql("read_stream_heads")["heads"], db.array(known))
    return {
        db.text(task): StreamHead(State(state), run, tenant, last, done, total, note or "")
        for task, state, run, tenant, last, done, total, note in rows
    }
