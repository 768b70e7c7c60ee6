"""Looking at tasks: rows, results, payloads, history."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidegate.store import ids
from tidegate.store.lookups import history_of, stored_result, task_row
from tidegate.store.refusals import not_found
from tidegate.store.rows import HistoryEntry, StoredResult, TaskRow
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_READ = load("read")["read"]
_RESULT = load("result")["result"]
_PAYLOAD = load("payload")["payload"]
_HISTORY = load("history")
_FIND = load("find_ids")["find"]


def read(db: apsw.Connection, task_ids: Sequence[str]) -> dict[str, TaskRow]:
    """Return the rows of those ids that exist, by the id as it was given."""
    given = {found: task_id for task_id in task_ids if (found := ids.known_blob(task_id)) is not None}
    if not given:
        return {}
    rows = db.execute(_READ, (query.array(tuple(given)),))
    return {given[row[0]]: task_row(row, ids.text) for row in rows}


def rows_of(db: apsw.Connection, tasks: Sequence[bytes]) -> list[TaskRow]:
    """Return the rows of these tasks in their order."""
    if not tasks:
        return []
    return [task_row(row, ids.text) for row in query.rows(db, _READ, (query.array(tuple(tasks)),))]


def find_ids(db: apsw.Connection, least: str, largest: str, tenant: str | None, limit: int) -> list[str]:
    """Return the first task ids from `least` to `largest`, in order."""
    bindings = (ids.blob(least), ids.blob(largest), None if tenant is None else storable(tenant), limit)
    return [ids.text(task) for task in query.column(db, _FIND, bindings)]


def result(db: apsw.Connection, task_id: str) -> StoredResult | None:
    """Return the result of a final task; None if it is not final.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = query.row(db, _RESULT, (ids.known_blob(task_id),))
    if row is None:
        raise not_found(task_id)
    return stored_result(row)


def payload(db: apsw.Connection, task_id: str) -> tuple[bytes, str]:
    """Return a task's encoded arguments and their codec tag.

    Raises:
        TaskNotFoundError: No such task.
    """
    row = query.row(db, _PAYLOAD, (ids.known_blob(task_id),))
    if row is None:
        raise not_found(task_id)
    args, codec_tag = row
    return args, codec_tag


def history(db: apsw.Connection, task_id: str) -> list[HistoryEntry]:
    """Return every run and act of a task, oldest first; empty if there is no such task."""
    task = ids.known_blob(task_id)
    enqueued_at = query.value(db, _HISTORY["enqueued"], (task,))
    if enqueued_at is None:
        return []
    return history_of(
        enqueued_at,
        attempts=query.rows(db, _HISTORY["attempts"], (task,)),
        other_runs=query.rows(db, _HISTORY["other_runs"], (task,)),
        acts=query.rows(db, _HISTORY["acts"], (task,)),
    )
