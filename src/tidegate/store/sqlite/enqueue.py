"""Storing new tasks: at once (`enqueue`), and the rows that a staged enqueue shares with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from tidegate.store import ids
from tidegate.store.incoming import channel_of, demand_few, demand_text, task_row
from tidegate.store.incoming import due_at as moment_due
from tidegate.store.rows import Enqueued, NewTask
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.statements import load
from tidegate.store.totals import Where

_SQL = load("enqueue")
_FORGET_STAGED = load("drop_stage")["forget_part"]


class Fresh(NamedTuple):
    """A task about to be stored."""

    id: bytes
    task: NewTask
    due_at: float | None
    """None: ready at once."""


def enqueue(db: apsw.Connection, now: float, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Store these tasks, all or none, and answer in their order.

    Raises:
        KeyConflictError: A key is taken by a task with another fingerprint.
        ArgumentsError: A text cannot be stored.
        OptionError: An id, a moment or the number of tasks is out of range.
    """
    fresh = prepare(now, tasks)
    taken = stored(db, [row.id for row in fresh])
    if taken:
        taken -= _take_out_of_stages(db, taken)
    answers: list[Enqueued] = []
    new: list[Fresh] = []
    for row in fresh:
        holder = row.id if row.id in taken else _settle(db, now, row)
        if holder is None:
            taken.add(row.id)
            new.append(row)
            answers.append(Enqueued(row.task.id, created=True))
        else:
            answers.append(Enqueued(ids.text(holder), created=holder == row.id))
    _insert_rest(db, now, new)
    return answers


def prepare(now: float, tasks: Sequence[NewTask]) -> list[Fresh]:
    """Check the tasks and find when each is due.

    Raises:
        OptionError: An id, a moment or the number of tasks is out of range.
        ArgumentsError: A text cannot be stored.
    """
    demand_few(tasks)
    for task in tasks:
        demand_text(task)
    return [Fresh(ids.new_blob(task.id), task, moment_due(now, task)) for task in tasks]


def stored(db: apsw.Connection, found: Sequence[bytes]) -> set[bytes]:
    """Return which of these ids are stored already."""
    if not found:
        return set()
    return {task_id for (task_id,) in query.rows(db, _SQL["stored"], (query.array(tuple(found)),))}


def _take_out_of_stages(db: apsw.Connection, found: set[bytes]) -> set[bytes]:
    """Forget those that only an uncommitted stage holds, which nothing can see; return them."""
    unseen = query.column(db, _SQL["unseen"], (query.array(tuple(found)),))
    if unseen:
        delete_tasks(db, unseen)
        db.execute(_FORGET_STAGED, (query.array(unseen),))
    return set(unseen)


def insert_tasks(db: apsw.Connection, now: float, new: Iterable[Fresh]) -> None:
    """Write the lifelong rows and the payloads."""
    new = list(new)
    db.executemany(_SQL["task"], [task_row(now, row.id, row.task) for row in new])
    db.executemany(_SQL["payload"], [(row.id, row.task.codec_tag, row.task.args) for row in new])


def insert_places(db: apsw.Connection, now: float, new: Sequence[Fresh]) -> None:
    """Put tasks into the main queue or among the scheduled ones."""
    ready, scheduled = [], []
    for task_id, task, due_at in new:
        where = (task.queue, int(task.priority), task.upstream, task.function, task.tenant)
        if due_at is None:
            ready.append((task_id, *where, now, now))
        else:
            scheduled.append((task_id, due_at, *where, due_at))
    db.executemany(_SQL["ready"], ready)
    db.executemany(_SQL["scheduled"], scheduled)


def count_enqueued(db: apsw.Connection, now: float, tasks: Counter[Where]) -> None:
    """Add numbers of tasks by channel to the minute's roll-up."""
    minute = int(now // 60)
    db.executemany(_SQL["count"], [(minute, *where, number) for where, number in tasks.items()])


def claims_of(row: Fresh) -> keys.Claims | None:
    """Return the names a task wants to hold; None if it wants none."""
    task = row.task
    if task.key is None and task.unique is None:
        return None
    return keys.Claims(
        row.id,
        task.tenant,
        task.fingerprint,
        task.key,
        task.key_seconds,
        task.unique,
        task.unique_seconds,
    )


def _settle(db: apsw.Connection, now: float, row: Fresh) -> bytes | None:
    """Store a task that wants names, so that the next one finds them held; return who held them before."""
    wanted = claims_of(row)
    if wanted is None:
        return None
    holder = keys.settle(db, now, wanted)
    if holder is None:
        insert_tasks(db, now, [row])
    return holder


def _insert_rest(db: apsw.Connection, now: float, new: Sequence[Fresh]) -> None:
    insert_tasks(db, now, (row for row in new if row.task.key is None and row.task.unique is None))
    insert_places(db, now, new)
    count_enqueued(db, now, Counter([channel_of(row.task) for row in new]))
