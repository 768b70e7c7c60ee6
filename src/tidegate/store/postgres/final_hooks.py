"""Enqueue the tasks that follow tasks which have just reached a final state, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.store.common.final_hooks import EndedTask, hook_tasks
from tidegate.store.postgres.enqueue import enqueue_in_transaction
from tidegate.store.postgres.session import PostgresSession


async def enqueue_hooks(db: PostgresSession, ended: Sequence[EndedTask]) -> None:
    """Store the tasks that follow these tasks. If there are no hooks, no statement is run."""
    if ended:
        tasks = await hook_tasks(db, await db.now(), ended)
        if tasks:
            await enqueue_in_transaction(db, tasks)
