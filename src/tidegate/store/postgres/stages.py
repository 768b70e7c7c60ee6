"""Enqueues too large for one transaction: staged in parts, made visible at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.errors import KeyConflictError
from tidegate.store.incoming import due_at
from tidegate.store.postgres.copying import copy_tasks
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.enqueue import as_arguments, demand
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.refusals import key_conflict, no_stage, stage_closed
from tidegate.store.rows import NewTask
from tidegate.store.text import storable

_STAGE = load("stage")
_COMMIT = load("commit_stage")
_DROP = load("drop_stage")

_STAGED = (
    "stage_id", "place", "task_id", "due_at", "fingerprint", "key_seconds", "unique_seconds"
)  # fmt: skip
_PAGE = 5_000
"""Names settled, or tasks dropped, by one statement."""
_COMMIT_SECONDS = 600.0
"""A commit settles the names of all of a stage's tasks in one transaction."""


async def stage(database: Database, stage_id: str, tasks: Sequence[NewTask]) -> None:
    """Store a part of a larger enqueue where nothing can see it yet.

    Raises:
        WrongStateError: The stage was committed or refused already.
        ArgumentsError, OptionError: As `enqueue`.
    """
    demand(tasks)
    stage_id = storable(stage_id)
    with as_arguments():
        await database.transact(lambda db: _fill(db, stage_id, tasks))


async def commit_stage(database: Database, stage_id: str) -> dict[str, str]:
    """Make a stage's tasks visible at once; return {staged id: holder's id} where a name was taken.

    Raises:
        KeyConflictError: A key is taken by a task with another fingerprint; a resend hears so too.
        WrongStateError: There is no such stage: never filled, dropped, or swept away after a day.
    """
    done = await database.transact(lambda db: _commit(db, storable(stage_id)), seconds=_COMMIT_SECONDS)
    if isinstance(done, KeyConflictError):
        raise done
    return done


async def drop_stage(database: Database, stage_id: str) -> None:
    """Forget an uncommitted stage and its tasks; a committed one stays."""
    await database.transact(lambda db: _drop(db, storable(stage_id)))


async def _fill(db: PostgresSession, stage_id: str, tasks: Sequence[NewTask]) -> None:
    now = await db.now()
    await db.run(_STAGE["stage"], stage_id, now)
    committed_at, _, refused_for = await db.row(_STAGE["state"], stage_id)
    if committed_at is not None or refused_for is not None:
        raise stage_closed(stage_id)
    last_place = await db.value(_STAGE["last_place"], stage_id)
    there = set(map(str, await db.column(_STAGE["stored"], [task.id for task in tasks])))
    new: dict[str, NewTask] = {}
    old: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    for place, task in enumerate(tasks, last_place + 1):
        if task.id in there or task.id in new:
            old.setdefault(task.id, place)
        else:
            new[task.id] = task
            rows.append((stage_id, place, task.id, due_at(now, task), *_names(task)))
    if old:
        await db.run(_STAGE["adopt"], stage_id, list(old), list(old.values()))
    if new:
        await copy_tasks(db, now, list(new.values()))
        await db.copy("staged", _STAGED, rows)


async def _commit(db: PostgresSession, stage_id: str) -> dict[str, str] | KeyConflictError:
    state = await db.row(_STAGE["state"], stage_id)
    if state is None:
        raise no_stage(stage_id)
    committed_at, refused_key, refused_for = state
    if refused_for is not None:
        return key_conflict(refused_key, refused_for)
    if committed_at is None:
        now = await db.now()
        try:
            async with db.savepoint():
                await _settle(db, stage_id, now)
        except KeyConflictError as conflict:
            await _refuse(db, stage_id, conflict)
            return conflict
        await db.run(_COMMIT["commit"], stage_id, now)
    return {str(task): str(holder) for task, holder in await db.rows(_COMMIT["losers"], stage_id)}


async def _settle(db: PostgresSession, stage_id: str, now: float) -> None:
    """Take the names of a stage's tasks in their order.

    Raises:
        KeyConflictError: A key is taken by a task with another fingerprint.
    """
    place = 0
    while page := await db.rows(_COMMIT["settle"], stage_id, place, _PAGE, now):
        lost = {}
        for _, task, key, holder, conflict in page:
            if conflict:
                raise key_conflict(key, str(holder))
            if holder is not None:
                lost[task] = holder
        if lost:
            await db.run(_COMMIT["lose"], list(lost), list(lost.values()))
        place = page[-1][0]


async def _refuse(db: PostgresSession, stage_id: str, conflict: KeyConflictError) -> None:
    while await db.value(_DROP["part"], stage_id, _PAGE):
        pass
    await db.run(_COMMIT["refuse"], stage_id, conflict.facts["key"], conflict.facts["task_id"])


async def _drop(db: PostgresSession, stage_id: str) -> None:
    state = await db.row(_STAGE["state"], stage_id)
    if state is None or state[0] is not None:
        return
    while await db.value(_DROP["part"], stage_id, _PAGE):
        pass
    await db.run(_DROP["forget_stage"], stage_id)


def _names(task: NewTask) -> tuple[bytes | None, float | None, float | None]:
    if task.key is None and task.unique is None:
        return (None, None, None)
    return (task.fingerprint, task.key_seconds, task.unique_seconds)
