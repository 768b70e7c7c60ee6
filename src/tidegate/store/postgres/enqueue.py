"""Store new tasks: a few through a function in the database, many by COPY."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg

from tidegate.errors import ArgumentsError
from tidegate.store.common import ids, parents
from tidegate.store.common.final_hooks import encode_hook
from tidegate.store.common.new_tasks import due_at, require_few, require_storable_texts
from tidegate.store.common.refusals import key_conflict
from tidegate.store.common.text import to_json
from tidegate.store.postgres.copy_tasks import enqueue_by_copy
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.errors import UNSTORABLE
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import EnqueueResult, NewTask

_SQL = load("enqueue")
_HOOKS = load("final_hooks")

COPY_TASKS = 50
"""From this number of tasks on, the extra round trips of COPY cost less than a function call per task."""


async def enqueue(database: Database, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store these tasks, all or none; return one result per task, in order.

    Raises:
        KeyConflictError: A task with another fingerprint holds a key.
        ArgumentsError: A text cannot be stored.
        OptionError: An id, a moment or the number of tasks is out of range.
    """
    require_storable(tasks)
    with wrap_unstorable():
        if any(task.after for task in tasks):
            async with database.waiting_for_names():
                return await database.transact(lambda db: _enqueue_held(db, tasks))
        if all(_wants_no_names(task) for task in tasks):
            return await _store_unnamed(database, tasks)
        async with database.waiting_for_names():
            return await _store_named(database, tasks)


async def _store_unnamed(database: Database, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store tasks without names by COPY. If a task is stored already (a resend), use the function instead."""
    with suppress(asyncpg.UniqueViolationError):
        if len(tasks) == 1 and _is_plain(tasks[0]):
            return [await database.autocommit(lambda db: _enqueue_plain(db, tasks[0]))]
        if len(tasks) >= COPY_TASKS:
            await database.transact(lambda db: enqueue_by_copy(db, tasks))
            return [EnqueueResult(task.id, created=True) for task in tasks]
    return await _store_named(database, tasks)


async def _store_named(database: Database, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store tasks through the database function, which takes their names."""
    if len(tasks) == 1 and tasks[0].on_final is None:
        return [await database.autocommit(lambda db: _enqueue_one(db, tasks[0]))]
    return await database.transact(lambda db: enqueue_in_transaction(db, tasks))


async def _enqueue_held(db: PostgresSession, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store tasks of which some wait for others."""
    answers = await enqueue_in_transaction(db, tasks)
    created = [task for task, answer in zip(tasks, answers, strict=True) if answer.task_id == task.id]
    await parents.hold_new(db, created)
    return answers


async def enqueue_unnamed(db: PostgresSession, tasks: Sequence[NewTask]) -> None:
    """Store new tasks without key or unique name in the transaction of a session.

    Raises:
        ArgumentsError, OptionError: As `enqueue`.
        asyncpg.UniqueViolationError: One of the tasks is stored already.
    """
    require_storable(tasks)
    if len(tasks) >= COPY_TASKS:
        await enqueue_by_copy(db, tasks)
    elif tasks:
        await enqueue_in_transaction(db, tasks)


async def enqueue_in_transaction(db: PostgresSession, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store tasks in the session's transaction; return one result per task, in order."""
    answers = await _enqueue_many(db, tasks)
    if hooks := hooks_by_id(tasks):
        await db.run(_HOOKS["set"], list(hooks), list(hooks.values()))
    return answers


def hooks_by_id(tasks: Sequence[NewTask]) -> dict[str, str]:
    """Return the stored form of the final hooks of these tasks, by task id. `enqueue_1` stores no hooks."""
    return {task.id: hook for task in tasks if (hook := encode_hook(task.on_final)) is not None}


@contextmanager
def wrap_unstorable() -> Iterator[None]:
    """Convert errors for values that PostgreSQL cannot store to `ArgumentsError`.

    Raises:
        ArgumentsError: A value cannot be stored.
    """
    try:
        yield
    except UNSTORABLE as error:
        raise ArgumentsError(
            f"PostgreSQL cannot store a value of these tasks: {error}",
            fix="use smaller numbers and shorter names",
        ) from error


def require_storable(tasks: Sequence[NewTask]) -> None:
    """Raise an error unless these tasks can be stored.

    Raises:
        ArgumentsError, OptionError: As `enqueue`.
    """
    require_few(tasks)
    for task in tasks:
        require_storable_texts(task)
        ids.new_blob(task.id)
        due_at(time.time(), task)  # this checks by this machine's clock; the server checks again


def enqueue_values(task: NewTask) -> tuple[Any, ...]:
    """Return the parameters of `enqueue_1` for a task, after the identity and the current time."""
    return (
        task.id,
        task.function,
        task.queue,
        int(task.priority),
        task.upstream,
        task.tenant,
        task.codec_tag,
        task.args,
        task.fingerprint,
        task.key,
        task.key_seconds,
        task.unique,
        task.unique_seconds,
        task.delay_seconds,
        task.run_at,
        task.deadline_seconds,
        task.timeout_seconds,
        task.max_attempts,
        to_json(task.labels),
        task.total_timeout_seconds,
        task.deadline_at,
    )


def name_lock_order(tasks: Sequence[NewTask]) -> list[int]:
    """Return the indices of tasks in the order in which their names are taken.

    The order is the same in every process.

    So two batches that want the same names wait for each other without a deadlock. Tasks with equal names
    stay in the caller's order. If a task wants two names, no common order exists, so the caller's order is
    kept. A deadlock is then possible: the server detects it, and one of the batches is retried.
    """
    positions = range(len(tasks))
    if any(task.key is not None and task.unique is not None for task in tasks):
        return list(positions)
    return sorted(positions, key=lambda position: _name_of(tasks[position]))


def parse_enqueue_result(task: NewTask, holder: object, answer: str) -> EnqueueResult:
    """Return the result for the function's answer.

    Raises:
        KeyConflictError: A task with another fingerprint holds the key.
    """
    if answer == "conflict":
        raise key_conflict(task.key or "", str(holder))
    if answer == "stored":
        return EnqueueResult(task.id, created=True)
    return EnqueueResult(str(holder), created=str(holder) == ids.canonical_or_none(task.id))


def _name_of(task: NewTask) -> tuple[bool, str, str]:
    return task.key is None, task.tenant, task.key or task.unique or ""


def _wants_no_names(task: NewTask) -> bool:
    return task.key is None and task.unique is None


def _is_plain(task: NewTask) -> bool:
    """Whether a task is ready at once and has neither names nor a final hook."""
    return _wants_no_names(task) and task.run_at is None and task.delay_seconds <= 0 and task.on_final is None


async def _enqueue_plain(db: PostgresSession, task: NewTask) -> EnqueueResult:
    """Store a plain task.

    Raises:
        asyncpg.UniqueViolationError: The task is stored already.
    """
    if not db.keeps_plans:  # planning these statements costs more than the function, whose plans are kept
        return await _enqueue_one(db, task)
    await db.run(
        _SQL["plain"],
        db.at,
        task.id,
        task.function,
        task.queue,
        int(task.priority),
        task.upstream,
        task.tenant,
        task.codec_tag,
        task.args,
        task.deadline_seconds,
        task.timeout_seconds,
        task.max_attempts,
        to_json(task.labels),
        task.total_timeout_seconds,
        task.deadline_at,
    )
    return EnqueueResult(task.id, created=True)


async def _enqueue_one(db: PostgresSession, task: NewTask) -> EnqueueResult:
    holder, answer = await db.row(_SQL["one_task"], None, db.at, *enqueue_values(task))
    return parse_enqueue_result(task, holder, answer)


async def _enqueue_many(db: PostgresSession, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    positions = name_lock_order(tasks)
    columns = zip(*(enqueue_values(tasks[position]) for position in positions), strict=True)
    rows = await db.rows(_SQL["several_tasks"], None, db.at, *map(list, columns))
    answers = dict(zip(positions, rows, strict=True))
    return [parse_enqueue_result(task, *answers[position]) for position, task in enumerate(tasks)]
