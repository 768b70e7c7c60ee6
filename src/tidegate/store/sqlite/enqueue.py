"""Store new tasks: `enqueue`, and the helpers that it shares with the enqueue in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from tidegate.store.common import ids, parents
from tidegate.store.common.new_tasks import due_at as moment_due
from tidegate.store.common.new_tasks import (
    map_task_row,
    require_few,
    require_storable_texts,
    rollup_key,
    task_row,
)
from tidegate.store.common.rollup_totals import RollupKey
from tidegate.store.rows import EnqueueResult, NewTask
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

_SQL = load("enqueue")
_FORGET_PART = load("drop_batch")["forget_part"]


class StorableTask(NamedTuple):
    """A checked task that is about to be stored."""

    id: bytes
    task: NewTask
    due_at: float | None
    """When the task becomes ready; None if it is ready now."""


def enqueue(db: apsw.Connection, now: float, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
    """Store these tasks, all or none; return one result per task, in order.

    Raises:
        KeyConflictError: A task with another fingerprint holds a key.
        ArgumentsError: A text cannot be stored.
        OptionError: An id, a moment or the number of tasks is out of range.
    """
    fresh = prepare(now, tasks)
    taken = stored(db, [row.id for row in fresh])
    if taken:
        taken -= _forget_unseen(db, taken)
    answers: list[EnqueueResult] = []
    new: list[StorableTask] = []
    for row in fresh:
        holder = row.id if row.id in taken else _take_names(db, now, row)
        if holder is None:
            taken.add(row.id)
            new.append(row)
            answers.append(EnqueueResult(row.task.id, created=True))
        else:
            answers.append(EnqueueResult(ids.to_text(holder), created=holder == row.id))
    _insert_rest(db, now, new)
    if any(row.task.after for row in new):
        complete(parents.hold_new(SqliteSession(db, now), [row.task for row in new]))
    return answers


def prepare(now: float, tasks: Sequence[NewTask]) -> list[StorableTask]:
    """Check the tasks and compute when each is due.

    Raises:
        OptionError: An id, a moment or the number of tasks is out of range.
        ArgumentsError: A text cannot be stored.
    """
    require_few(tasks)
    for task in tasks:
        require_storable_texts(task)
    return [StorableTask(ids.new_blob(task.id), task, moment_due(now, task)) for task in tasks]


def stored(db: apsw.Connection, found: Sequence[bytes]) -> set[bytes]:
    """Return which of these ids are stored already."""
    if not found:
        return set()
    return {task_id for (task_id,) in query.rows(db, _SQL["stored"], (query.array(tuple(found)),))}


def _forget_unseen(db: apsw.Connection, found: set[bytes]) -> set[bytes]:
    """Delete tasks that are only in an uncommitted batch, and so invisible; return their ids."""
    unseen = query.column(db, _SQL["unseen"], (query.array(tuple(found)),))
    if unseen:
        delete_tasks(db, unseen)
        db.execute(_FORGET_PART, (query.array(unseen),))
    return set(unseen)


def insert_tasks(db: apsw.Connection, now: float, new: Iterable[StorableTask]) -> None:
    """Write the rows in `task` and the payloads."""
    new = list(new)
    db.executemany(_SQL["task"], [task_row(now, row.id, row.task) for row in new])
    db.executemany(_SQL["payload"], [(row.id, row.task.codec_tag, row.task.args) for row in new])


def insert_items(
    db: apsw.Connection, now: float, new: Sequence[StorableTask], map_id: bytes, position: int
) -> None:
    """Write the rows in `task` and the payloads of items of a map, of which the first has this position."""
    rows = [map_task_row(now, row.id, row.task, map_id, at) for at, row in enumerate(new, position)]
    db.executemany(_SQL["item"], rows)
    db.executemany(_SQL["payload"], [(row.id, row.task.codec_tag, row.task.args) for row in new])


def insert_places(db: apsw.Connection, now: float, new: Sequence[StorableTask]) -> None:
    """Put tasks into the main queue or among the scheduled tasks."""
    ready, scheduled = [], []
    for task_id, task, due_at in new:
        where = (task.queue, int(task.priority), task.upstream, task.function, task.tenant)
        if due_at is None:
            ready.append((task_id, *where, now, now))
        else:
            scheduled.append((task_id, due_at, *where, due_at))
    db.executemany(_SQL["ready"], ready)
    db.executemany(_SQL["scheduled"], scheduled)


def count_enqueued(db: apsw.Connection, now: float, tasks: Counter[RollupKey]) -> None:
    """Add the numbers of tasks by channel to the roll-up of this minute."""
    minute = int(now // 60)
    db.executemany(_SQL["count"], [(minute, *where, number) for where, number in tasks.items()])


def wanted_names(row: StorableTask) -> keys.WantedNames | None:
    """Return the key and unique name a task wants to hold; None if it wants neither."""
    task = row.task
    if task.key is None and task.unique is None:
        return None
    return keys.WantedNames(
        row.id,
        task.tenant,
        task.fingerprint,
        task.key,
        task.key_seconds,
        task.unique,
        task.unique_seconds,
    )


def _take_names(db: apsw.Connection, now: float, row: StorableTask) -> bytes | None:
    """Take a task's names and store it, so that the next task finds them taken; return an earlier holder."""
    wanted = wanted_names(row)
    if wanted is None:
        return None
    holder = keys.take_names(db, now, wanted)
    if holder is None:
        insert_tasks(db, now, [row])
    return holder


def _insert_rest(db: apsw.Connection, now: float, new: Sequence[StorableTask]) -> None:
    insert_tasks(db, now, (row for row in new if row.task.key is None and row.task.unique is None))
    insert_places(db, now, new)
    count_enqueued(db, now, Counter([rollup_key(row.task) for row in new]))
