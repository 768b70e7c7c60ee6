"""Pages of tasks, newest first."""

from __future__ import annotations

import heapq

import apsw

from tidegate.domain.states import State
from tidegate.store import ids
from tidegate.store.filters import filter_parameters, places_of
from tidegate.store.rows import TaskFilter, TaskRow
from tidegate.store.sqlite.reads import rows_of
from tidegate.store.sqlite.statements import load

_SQL = load("list_tasks")

_AFTER_ALL = b"\xff" * 17
"""Larger than every id."""


def list_tasks(db: apsw.Connection, which: TaskFilter, after: str | None, limit: int) -> list[TaskRow]:
    """Return tasks newest first (by id), `limit` at most, continuing after the id `after`."""
    start = _AFTER_ALL if after is None else (ids.known_blob(after) or _AFTER_ALL)
    pages = [
        _page(db, statement, state, which, start, limit)
        for state in which.states or tuple(State)
        for statement in places_of(state)
    ]
    newest = list(dict.fromkeys(heapq.merge(*pages, reverse=True)))[:limit]
    return rows_of(db, newest)


def _page(
    db: apsw.Connection, statement: str, state: State, which: TaskFilter, start: bytes, limit: int
) -> list[bytes]:
    found = db.execute(_SQL[statement], (str(state), *filter_parameters(which), start, limit))
    return [task_id for (task_id,) in found]
