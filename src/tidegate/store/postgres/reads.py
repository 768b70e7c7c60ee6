"""Looking at tasks: rows, results, payloads, history."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.store import ids
from tidegate.store.lookups import history_of, stored_result, task_row
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.refusals import not_found
from tidegate.store.rows import HistoryEntry, StoredResult, TaskRow
from tidegate.store.text import storable

_READ = load("read")["read"]
_RESULT = load("result")["result"]
_PAYLOAD = load("payload")["payload"]
_HISTORY = load("history")
_FIND = load("find_ids")["find"]


async def read(db: Session, task_ids: Sequence[str]) -> dict[str, TaskRow]:
    """Return the rows of those ids that exist, by the id as it was given."""
    given = {known: task_id for task_id in task_ids if (known := ids.known(task_id)) is not None}
    found = {row.id: row for row in await rows_of(db, list(given))}
    return {task_id: found[known] for known, task_id in given.items() if known in found}


async def rows_of(db: Session, task_ids: Sequence[str]) -> list[TaskRow]:
    """Return the rows of these tasks, in no order."""
    if not task_ids:
        return []
    return [task_row(row, str) for row in await db.rows(_READ, task_ids)]


async def find_ids(db: Session, least: str, largest: str, tenant: str | None, limit: int) -> list[str]:
    """Return the first task ids from `least` to `largest`, in order."""
    tenant = None if tenant is None else storable(tenant)
    return [str(task) for task in await db.column(_FIND, least, largest, tenant, limit)]


async def result(db: Session, task_id: str) -> StoredResult | None:
    """Return the result of a final task; None if it is not final.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = await db.row(_RESULT, ids.known(task_id))
    if row is None:
        raise not_found(task_id)
    return stored_result(row)


async def payload(db: Session, task_id: str) -> tuple[bytes, str]:
    """Return a task's encoded arguments and their codec tag.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = await db.row(_PAYLOAD, ids.known(task_id))
    if row is None:
        raise not_found(task_id)
    args, codec_tag = row
    return args, codec_tag


async def history(db: Session, task_id: str) -> list[HistoryEntry]:
    """Return every run and act of a task, oldest first; empty if there is no such task."""
    task = ids.known(task_id)
    enqueued_at = await db.value(_HISTORY["enqueued"], task)
    if enqueued_at is None:
        return []
    return history_of(
        enqueued_at,
        attempts=await db.rows(_HISTORY["attempts"], task),
        other_runs=await db.rows(_HISTORY["other_runs"], task),
        acts=await db.rows(_HISTORY["acts"], task),
    )
