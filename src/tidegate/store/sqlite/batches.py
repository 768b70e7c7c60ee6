"""Enqueues too large for one transaction: stored in parts, committed together, released in small steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from tidegate.errors import KeyConflictError
from tidegate.store.common import ids
from tidegate.store.common.new_tasks import require_no_parents
from tidegate.store.common.refusals import batch_closed, key_conflict, no_batch
from tidegate.store.common.text import storable
from tidegate.store.rows import NewTask
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.enqueue import (
    StorableTask,
    count_enqueued,
    insert_items,
    insert_tasks,
    prepare,
    stored,
    wanted_names,
)
from tidegate.store.sqlite.statements import load

_PART = load("enqueue_part")
_COMMIT = load("commit_batch")
_RELEASE = load("release_batches")
_DROP_BATCH = load("drop_batch")

_PAGE = 5_000
"""How many rows are read into memory together."""


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """A batch whose commit found a key that another task holds."""

    key: str
    holder: bytes

    def error(self) -> KeyConflictError:
        """Return the error for the caller, the same for a repeated commit."""
        return key_conflict(self.key, ids.to_text(self.holder))


def enqueue_part(
    db: apsw.Connection, now: float, batch_id: str, tasks: Sequence[NewTask], *, map_id: str | None = None
) -> None:
    """Store a part of a larger enqueue, invisible until its batch is committed.

    The tasks of a batch that is a map's are its items, in their order.

    Raises:
        WrongStateError: The batch was committed or refused already. ArgumentsError, OptionError: As
            `enqueue`.
    """
    require_no_parents(tasks)
    fresh = prepare(now, tasks)
    batch_id = storable(batch_id)
    db.execute(_PART["enqueue_batch"], (batch_id, now))
    _require_open(db, batch_id)
    position = last = query.value(db, _PART["last_position"], (batch_id,))
    there = stored(db, [row.id for row in fresh])
    new: list[StorableTask] = []
    for row in fresh:
        position += 1
        if row.id in there:
            db.execute(_PART["adopt"], (batch_id, row.id, position))
        else:
            there.add(row.id)
            new.append(row)
            db.execute(_PART["enqueue_batch_task"], (batch_id, position, row.id, row.due_at, *_names(row)))
    if map_id is None:
        insert_tasks(db, now, new)
    else:
        insert_items(db, now, new, ids.new_blob(map_id), last)


def commit_batch(db: apsw.Connection, now: float, batch_id: str) -> dict[str, str] | RefusedBatch:
    """Make all tasks of a batch visible; return {own id: id of the holder} where a name was taken.

    A refused batch is returned as a value, not raised: an error would roll back the stored refusal.

    Raises:
        WrongStateError: There is no such batch: it was never filled, was dropped, or expired after a day.
    """
    batch_id = storable(batch_id)
    state = query.row(db, _PART["state"], (batch_id,))
    if state is None:
        raise no_batch(batch_id)
    committed_at, refused_key, refused_for = state
    if refused_for is not None:
        return RefusedBatch(refused_key, refused_for)
    if committed_at is None:
        refused = _take_names(db, now, batch_id)
        if refused is not None:
            return refused
        db.execute(_COMMIT["commit"], (batch_id, now))
    losers = db.execute(_COMMIT["losers"], (batch_id,))
    return {ids.to_text(task): ids.to_text(holder) for task, holder in losers}


def drop_batch(db: apsw.Connection, batch_id: str) -> None:
    """Delete an uncommitted batch and its tasks; a committed one stays."""
    batch_id = storable(batch_id)
    state = query.row(db, _PART["state"], (batch_id,))
    if state is None or state[0] is not None:
        return
    while drop_part(db, batch_id, _PAGE):
        pass
    db.execute(_DROP_BATCH["forget_batch"], (batch_id,))


def drop_part(db: apsw.Connection, batch_id: str, limit: int) -> int:
    """Delete up to `limit` of a batch's tasks; return how many were deleted."""
    part = query.column(db, _DROP_BATCH["part"], (batch_id, limit))
    if part:
        delete_tasks(db, part)
        db.execute(_DROP_BATCH["forget_part"], (query.array(part),))
    return len(part)


def precheck_release(db: apsw.Connection) -> int | None:
    """Return 0 if no committed batch waits to be released; None otherwise."""
    return None if query.value(db, _RELEASE["any"]) else 0


def release_batches(db: apsw.Connection, now: float, limit: int) -> int:
    """Move tasks of committed batches to their queues; return how many were moved."""
    part = query.column(db, _RELEASE["next"], (limit,))
    if not part:
        return 0
    array = query.array(part)
    channels = query.rows(db, _RELEASE["count"], (array,))
    db.execute(_RELEASE["ready"], (array,))
    db.execute(_RELEASE["scheduled"], (array,))
    db.execute(_RELEASE["remove"], (array,))
    count_enqueued(db, now, Counter({tuple(where): tasks for *where, tasks in channels}))
    return len(part)


def _require_open(db: apsw.Connection, batch_id: str) -> None:
    committed_at, _, refused_for = query.one(db, _PART["state"], (batch_id,))
    if committed_at is not None or refused_for is not None:
        raise batch_closed(batch_id)


def _names(row: StorableTask) -> tuple[bytes | None, float | None, float | None]:
    wanted = wanted_names(row)
    if wanted is None:
        return (None, None, None)
    return (wanted.fingerprint, wanted.key_seconds, wanted.unique_seconds)


def _take_names(db: apsw.Connection, now: float, batch_id: str) -> RefusedBatch | None:
    """Take the names of a batch's tasks in their order, or refuse the whole batch."""
    db.execute("SAVEPOINT take_names")
    try:
        position = 0
        while page := query.rows(db, _COMMIT["keyed"], (batch_id, position, _PAGE)):
            for _, *names in page:
                _take_names_of(db, now, keys.WantedNames(*names))
            position = page[-1][0]
    except KeyConflictError as conflict:
        db.execute("ROLLBACK TO take_names")
        refused = RefusedBatch(conflict.key, ids.to_blob(conflict.task_id))
        while drop_part(db, batch_id, _PAGE):
            pass
        db.execute(_COMMIT["refuse"], (batch_id, refused.key, refused.holder))
        db.execute("RELEASE take_names")
        return refused
    db.execute("RELEASE take_names")
    return None


def _take_names_of(db: apsw.Connection, now: float, wanted: keys.WantedNames) -> None:
    holder = keys.take_names(db, now, wanted)
    if holder is not None:
        db.execute(_COMMIT["lose"], (wanted.task, holder))
        db.execute(_COMMIT["drop_task"], (wanted.task,))
        db.execute(_COMMIT["drop_payload"], (wanted.task,))
