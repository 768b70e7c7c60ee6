"""Delete tasks with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.task_tables import TASK_TABLES, statement_for

_SQL = load("task_tables")


def _for_all_tables() -> str:
    """Return one statement that deletes from all tables of the registry, so that one round trip is enough.

    Items of maps among these tasks are also counted.
    """
    *parts, last = [statement_for(table, _SQL["delete"]) for table in TASK_TABLES]
    parts.insert(0, load("maps")["keep_counts"])
    return "WITH " + ", ".join(f"part_{at} AS (\n{part}\n)" for at, part in enumerate(parts)) + f"\n{last}"


_DELETE = _for_all_tables()


async def delete_tasks(db: PostgresSession, tasks: Sequence[Any]) -> None:
    """Delete final or uncommitted tasks with their rows in all tables of the registry."""
    await db.run(_DELETE, tasks)
