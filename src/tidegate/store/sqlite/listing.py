"""Pages of tasks, newest first."""

from __future__ import annotations

import heapq

import apsw

from tidegate.domain.states import WAITING, State
from tidegate.store.rows import TaskFilter, TaskRow
from tidegate.store.sqlite import ids
from tidegate.store.sqlite.reads import rows_of
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable, to_json

_SQL = load("list_tasks")

_AFTER_ALL = b"\xff" * 17
"""Larger than every id."""


def list_tasks(db: apsw.Connection, which: TaskFilter, after: str | None, limit: int) -> list[TaskRow]:
    """Return tasks newest first (by id), `limit` at most, continuing after the id `after`."""
    start = _AFTER_ALL if after is None else (ids.known_blob(after) or _AFTER_ALL)
    pages = [
        _page(db, statement, state, which, start, limit)
        for state in which.states or tuple(State)
        for statement in _statements_of(state)
    ]
    newest = list(dict.fromkeys(heapq.merge(*pages, reverse=True)))[:limit]
    return rows_of(db, newest)


def filter_parameters(which: TaskFilter) -> tuple[str | float | None, ...]:
    """Return queue, function, tenant, reason, error class, moment and labels as statements want them."""
    texts = (which.queue, which.function, which.tenant, which.reason, which.error_class)
    labels = {storable(name): storable(value) for name, value in which.labels.items()}
    return (*(None if text is None else storable(text) for text in texts), which.before, to_json(labels))


def _page(
    db: apsw.Connection, statement: str, state: State, which: TaskFilter, start: bytes, limit: int
) -> list[bytes]:
    found = db.execute(_SQL[statement], (str(state), *filter_parameters(which), start, limit))
    return [task_id for (task_id,) in found]


def _statements_of(state: State) -> tuple[str, ...]:
    """Return the statements that list tasks of a state."""
    if state in WAITING:
        return ("waiting", "staged") if state is State.SCHEDULED else ("waiting",)
    return ("ready", "staged") if state is State.READY else (str(state),)
