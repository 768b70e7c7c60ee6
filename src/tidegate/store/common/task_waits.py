"""Tasks that suspended tasks wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.common.session import Session

MOST_WOKEN = 1_000
"""Most tasks that wake in one round."""


async def set_children(db: Session, task: Any, child_ids: Sequence[str]) -> None:
    """Record which tasks a task waits for, in the transaction that suspends it.

    Args:
        db: A session in that transaction.
        task: The task's id in its stored form.
        child_ids: The tasks that the run's task waits for.
    """
    sql = db.sql("task_waits")
    await db.run(sql["clear"], task)
    stored = [child for child_id in child_ids if (child := db.id(child_id)) is not None]
    if stored:
        await db.run(sql["add"], task, db.array(stored))


async def has_ended(db: Session) -> bool:
    """Return whether a suspended task can wake, because the tasks that it waits for have ended."""
    return bool(await db.rows(db.sql("task_waits")["ended"], db.at, 1))


async def wake_ended(db: Session, now: float) -> None:
    """Make suspended tasks due if the tasks that they wait for have ended.

    A task that is not suspended any more keeps its rows: it may be suspended again meanwhile.
    """
    sql = db.sql("task_waits")
    ended = await db.column(sql["ended"], db.at, MOST_WOKEN)
    if ended and (woken := await db.column(sql["wake"], db.array(ended), now)):
        await db.run(sql["clear_all"], db.array(woken))
