"""Storing new tasks at once: one or some through the server's function, many by COPY."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg

from tidegate.errors import ArgumentsError
from tidegate.store import ids
from tidegate.store.incoming import demand_few, demand_text, due_at
from tidegate.store.postgres.copying import enqueue_by_copy
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.wrap import UNSTORABLE
from tidegate.store.refusals import key_conflict
from tidegate.store.rows import Enqueued, NewTask
from tidegate.store.text import to_json

_SQL = load("enqueue")

COPY_TASKS = 50
"""From so many on, the extra round trips of COPY cost less than a function call for each task."""


async def enqueue(database: Database, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Store these tasks, all or none, and answer in their order.

    Raises:
        KeyConflictError: A key is taken by a task with another fingerprint.
        ArgumentsError: A text cannot be stored.
        OptionError: An id, a moment or the number of tasks is out of range.
    """
    demand(tasks)
    with as_arguments():
        if all(_wants_no_names(task) for task in tasks):
            return await _unnamed(database, tasks)
        async with database.settling():
            return await _settled(database, tasks)


async def _unnamed(database: Database, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Store tasks that want no names; where one is there already, as a resend, the slower way tells."""
    with suppress(asyncpg.UniqueViolationError):
        if len(tasks) == 1 and _is_plain(tasks[0]):
            return [await database.once(lambda db: _plain(db, tasks[0]))]
        if len(tasks) >= COPY_TASKS:
            await database.transact(lambda db: enqueue_by_copy(db, tasks))
            return [Enqueued(task.id, created=True) for task in tasks]
    return await _settled(database, tasks)


async def _settled(database: Database, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Store tasks by the server's function, which settles their names."""
    if len(tasks) == 1:
        return [await database.once(lambda db: _one(db, tasks[0]))]
    return await database.transact(lambda db: _some(db, tasks))


@contextmanager
def as_arguments() -> Iterator[None]:
    """Say of values that PostgreSQL cannot store that they are the caller's.

    Raises:
        ArgumentsError: One cannot be stored.
    """
    try:
        yield
    except UNSTORABLE as error:
        raise ArgumentsError(
            f"PostgreSQL cannot store a value of these tasks: {error}",
            fix="use smaller numbers and shorter names",
        ) from error


def demand(tasks: Sequence[NewTask]) -> None:
    """Return if these tasks can be stored.

    Raises:
        ArgumentsError, OptionError: As `enqueue`.
    """
    demand_few(tasks)
    for task in tasks:
        demand_text(task)
        ids.new_blob(task.id)
        due_at(time.time(), task)  # by this machine's clock: the server is asked later


def values_of(task: NewTask) -> tuple[Any, ...]:
    """Return what `enqueue_1` takes of a task, after the identity and the moment."""
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


def in_order_of_names(tasks: Sequence[NewTask]) -> list[int]:
    """Return the places of tasks in the order in which to take their names: the same for everybody.

    So two batches that want the same names wait for one another, never in a circle. Of equal names the first
    stays first. Where a task wants two names, no order is everybody's and the caller's is kept: the server
    finds the circle, and one of its batches is tried again.
    """
    places = range(len(tasks))
    if any(task.key is not None and task.unique is not None for task in tasks):
        return list(places)
    return sorted(places, key=lambda place: _name_of(tasks[place]))


def answer_of(task: NewTask, holder: object, answer: str) -> Enqueued:
    """Return what the function's answer means.

    Raises:
        KeyConflictError: The key is taken by a task with another fingerprint.
    """
    if answer == "conflict":
        raise key_conflict(task.key or "", str(holder))
    if answer == "stored":
        return Enqueued(task.id, created=True)
    return Enqueued(str(holder), created=str(holder) == ids.known(task.id))


def _name_of(task: NewTask) -> tuple[bool, str, str]:
    return task.key is None, task.tenant, task.key or task.unique or ""


def _wants_no_names(task: NewTask) -> bool:
    return task.key is None and task.unique is None


def _is_plain(task: NewTask) -> bool:
    """Whether a task is ready at once and there is nothing to settle."""
    return _wants_no_names(task) and task.run_at is None and task.delay_seconds <= 0


async def _plain(db: PostgresSession, task: NewTask) -> Enqueued:
    """Store a plain task.

    Raises:
        asyncpg.UniqueViolationError: It is there already.
    """
    if not db.keeps_plans:  # planning the rows costs more than the function, whose plans the server keeps
        return await _one(db, task)
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
    return Enqueued(task.id, created=True)


async def _one(db: PostgresSession, task: NewTask) -> Enqueued:
    holder, answer = await db.row(_SQL["one"], None, db.at, *values_of(task))
    return answer_of(task, holder, answer)


async def _some(db: PostgresSession, tasks: Sequence[NewTask]) -> list[Enqueued]:
    places = in_order_of_names(tasks)
    columns = zip(*(values_of(tasks[place]) for place in places), strict=True)
    rows = await db.rows(_SQL["some"], None, db.at, *map(list, columns))
    answers = dict(zip(places, rows, strict=True))
    return [answer_of(task, *answers[place]) for place, task in enumerate(tasks)]
