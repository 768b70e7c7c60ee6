"""Enqueues too large for one transaction: stored in parts, and committed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.errors import KeyConflictError
from tidegate.store.common.new_tasks import due_at, require_no_parents
from tidegate.store.common.refusals import batch_closed, key_conflict, no_batch
from tidegate.store.common.text import storable
from tidegate.store.postgres.copy_tasks import copy_items, copy_tasks
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.enqueue import require_storable, wrap_unstorable
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import NewTask

_PART = load("enqueue_part")
_COMMIT = load("commit_batch")
_DROP_BATCH = load("drop_batch")

_BATCH_COLUMNS = (
    "batch_id", "position", "task_id", "due_at", "fingerprint", "key_seconds", "unique_seconds"
)  # fmt: skip
_PAGE = 5_000
"""Number of tasks whose names one statement takes, or that one statement deletes."""
_COMMIT_SECONDS = 600.0
"""Time limit of a commit, which takes the names of all tasks of a batch in one transaction."""


async def enqueue_part(
    database: Database, batch_id: str, tasks: Sequence[NewTask], *, map_id: str | None = None
) -> None:
    """Store a part of a larger enqueue, invisible until its batch is committed.

    The tasks of a batch that is a map's are its items, in their order.

    Raises:
        WrongStateError: The batch was committed or refused already. ArgumentsError, OptionError: As
            `enqueue`.
    """
    require_storable(tasks)
    require_no_parents(tasks)
    batch_id = storable(batch_id)
    with wrap_unstorable():
        await database.transact(lambda db: _store_part(db, batch_id, tasks, map_id))


async def commit_batch(database: Database, batch_id: str) -> dict[str, str]:
    """Make all tasks of a batch visible; return {own id: id of the holder} where a name was taken.

    Raises:
        KeyConflictError: A task with another fingerprint holds a key. A repeated commit raises it again.
        WrongStateError: There is no such batch: it was never filled, was dropped, or expired after a day.
    """
    done = await database.transact(lambda db: commit_in_transaction(db, batch_id), seconds=_COMMIT_SECONDS)
    if isinstance(done, KeyConflictError):
        raise done
    return done


async def drop_batch(database: Database, batch_id: str) -> None:
    """Delete an uncommitted batch and its tasks; a committed one stays."""
    await database.transact(lambda db: _drop(db, storable(batch_id)))


async def _store_part(
    db: PostgresSession, batch_id: str, tasks: Sequence[NewTask], map_id: str | None
) -> None:
    now = await db.now()
    await db.run(_PART["enqueue_batch"], batch_id, now)
    committed_at, _, refused_for = await db.row(_PART["state"], batch_id)
    if committed_at is not None or refused_for is not None:
        raise batch_closed(batch_id)
    last_position = await db.value(_PART["last_position"], batch_id)
    there = set(map(str, await db.column(_PART["stored"], [task.id for task in tasks])))
    new: dict[str, NewTask] = {}
    old: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    for position, task in enumerate(tasks, last_position + 1):
        if task.id in there or task.id in new:
            old.setdefault(task.id, position)
        else:
            new[task.id] = task
            rows.append((batch_id, position, task.id, due_at(now, task), *_names(task)))
    if old:
        await db.run(_PART["adopt"], batch_id, list(old), list(old.values()))
    if new:
        if map_id is None:
            await copy_tasks(db, now, list(new.values()))
        else:
            await copy_items(db, now, list(new.values()), map_id, last_position)
        await db.copy("enqueue_batch_task", _BATCH_COLUMNS, rows)


async def commit_in_transaction(db: PostgresSession, batch_id: str) -> dict[str, str] | KeyConflictError:
    """Do what `commit_batch` does, in the transaction of a session. A conflict is returned, not raised."""
    batch_id = storable(batch_id)
    state = await db.row(_PART["state"], batch_id)
    if state is None:
        raise no_batch(batch_id)
    committed_at, refused_key, refused_for = state
    if refused_for is not None:
        return key_conflict(refused_key, refused_for)
    if committed_at is None:
        now = await db.now()
        try:
            async with db.savepoint():
                await _take_names(db, batch_id, now)
        except KeyConflictError as conflict:
            await _refuse(db, batch_id, conflict)
            return conflict
        await db.run(_COMMIT["commit"], batch_id, now)
    return {str(task): str(holder) for task, holder in await db.rows(_COMMIT["losers"], batch_id)}


async def _take_names(db: PostgresSession, batch_id: str, now: float) -> None:
    """Take the names of a batch's tasks in their order.

    Raises:
        KeyConflictError: A task with another fingerprint holds a key.
    """
    position = 0
    while page := await db.rows(_COMMIT["take_names"], batch_id, position, _PAGE, now):
        lost = {}
        for _, task, key, holder, conflict in page:
            if conflict:
                raise key_conflict(key, str(holder))
            if holder is not None:
                lost[task] = holder
        if lost:
            await db.run(_COMMIT["lose"], list(lost), list(lost.values()))
        position = page[-1][0]


async def _refuse(db: PostgresSession, batch_id: str, conflict: KeyConflictError) -> None:
    while await db.value(_DROP_BATCH["part"], batch_id, _PAGE):
        pass
    await db.run(_COMMIT["refuse"], batch_id, conflict.key, conflict.task_id)


async def _drop(db: PostgresSession, batch_id: str) -> None:
    state = await db.row(_PART["state"], batch_id)
    if state is None or state[0] is not None:
        return
    while await db.value(_DROP_BATCH["part"], batch_id, _PAGE):
        pass
    await db.run(_DROP_BATCH["forget_batch"], batch_id)


def _names(task: NewTask) -> tuple[bytes | None, float | None, float | None]:
    if task.key is None and task.unique is None:
        return (None, None, None)
    return (task.fingerprint, task.key_seconds, task.unique_seconds)
