"""Delete tasks with everything that belongs to them."""

from __future__ import annotations

import apsw

from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.task_tables import TASK_TABLES, statement_for

_STATEMENTS = tuple(statement_for(table, load("task_tables")["delete"]) for table in TASK_TABLES)
_KEEP_COUNTS = load("maps")["keep_counts"]
_UNDO = tuple(load("undo_enqueue").values())


def delete_tasks(db: apsw.Connection, tasks: tuple[bytes, ...]) -> None:
    """Delete one or more final or uncommitted tasks with their rows in all tables of the registry."""
    array = query.array(tasks)
    db.execute(_KEEP_COUNTS, (array,))
    for statement in _STATEMENTS:
        db.execute(statement, (array,))


def undo_enqueue(db: apsw.Connection, tasks: tuple[bytes, ...]) -> None:
    """Delete one or more tasks that no worker runs, with their keys, as if they had never been enqueued."""
    array = query.array(tasks)
    for statement in _UNDO:
        db.execute(statement, (array,))
    delete_tasks(db, tasks)
