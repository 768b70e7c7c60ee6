"""Delete tasks with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_DELETE = load("purge")["delete"]


async def delete_tasks(db: PostgresSession, tasks: Sequence[Any]) -> None:
    """Delete final or uncommitted tasks: row, payload, result, history, progress."""
    await db.run(_DELETE, tasks)
