"""Enqueues too large for one transaction: staged in parts, made visible at once, moved in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from tidegate.errors import KeyConflictError
from tidegate.store import ids
from tidegate.store.refusals import key_conflict, no_stage, stage_closed
from tidegate.store.rows import NewTask
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.enqueue import Fresh, claims_of, count_enqueued, insert_tasks, prepare, stored
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_STAGE = load("stage")
_COMMIT = load("commit_stage")
_UNSTAGE = load("unstage")
_DROP = load("drop_stage")

_PAGE = 5_000
"""Rows held in memory at once."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A stage whose commit met a key that another task holds."""

    key: str
    holder: bytes

    def error(self) -> KeyConflictError:
        """Return the error that callers get, now and when they ask again."""
        return key_conflict(self.key, ids.text(self.holder))


def stage(db: apsw.Connection, now: float, stage_id: str, tasks: Sequence[NewTask]) -> None:
    """Store a part of a larger enqueue where nothing can see it yet.

    Raises:
        WrongStateError: The stage was committed or refused already.
        ArgumentsError, OptionError: As `enqueue`.
    """
    fresh = prepare(now, tasks)
    stage_id = storable(stage_id)
    db.execute(_STAGE["stage"], (stage_id, now))
    _demand_open(db, stage_id)
    place = query.value(db, _STAGE["last_place"], (stage_id,))
    there = stored(db, [row.id for row in fresh])
    new: list[Fresh] = []
    for row in fresh:
        place += 1
        if row.id in there:
            db.execute(_STAGE["adopt"], (stage_id, row.id, place))
        else:
            there.add(row.id)
            new.append(row)
            db.execute(_STAGE["staged"], (stage_id, place, row.id, row.due_at, *_names(row)))
    insert_tasks(db, now, new)


def commit_stage(db: apsw.Connection, now: float, stage_id: str) -> dict[str, str] | Refused:
    """Make a stage's tasks visible at once; return {staged id: holder's id} where a name was taken.

    A value, not an error, says that it was refused: the refusal is to be kept, not rolled back.

    Raises:
        WrongStateError: There is no such stage: never filled, dropped, or swept away after a day.
    """
    stage_id = storable(stage_id)
    state = query.row(db, _STAGE["state"], (stage_id,))
    if state is None:
        raise no_stage(stage_id)
    committed_at, refused_key, refused_for = state
    if refused_for is not None:
        return Refused(refused_key, refused_for)
    if committed_at is None:
        refused = _settle(db, now, stage_id)
        if refused is not None:
            return refused
        db.execute(_COMMIT["commit"], (stage_id, now))
    losers = db.execute(_COMMIT["losers"], (stage_id,))
    return {ids.text(task): ids.text(holder) for task, holder in losers}


def drop_stage(db: apsw.Connection, stage_id: str) -> None:
    """Forget an uncommitted stage and its tasks; a committed one stays."""
    stage_id = storable(stage_id)
    state = query.row(db, _STAGE["state"], (stage_id,))
    if state is None or state[0] is not None:
        return
    while drop_part(db, stage_id, _PAGE):
        pass
    db.execute(_DROP["forget_stage"], (stage_id,))


def drop_part(db: apsw.Connection, stage_id: str, limit: int) -> int:
    """Delete some of a stage's tasks; return how many went."""
    part = query.column(db, _DROP["part"], (stage_id, limit))
    if part:
        delete_tasks(db, part)
        db.execute(_DROP["forget_part"], (query.array(part),))
    return len(part)


def look_unstage(db: apsw.Connection) -> int | None:
    """Return 0 if no committed stage waits to be moved."""
    return None if query.value(db, _UNSTAGE["any"]) else 0


def unstage(db: apsw.Connection, now: float, limit: int) -> int:
    """Move tasks of committed stages to where they belong; return how many were moved."""
    part = query.column(db, _UNSTAGE["next"], (limit,))
    if not part:
        return 0
    array = query.array(part)
    channels = query.rows(db, _UNSTAGE["count"], (array,))
    db.execute(_UNSTAGE["ready"], (array,))
    db.execute(_UNSTAGE["scheduled"], (array,))
    db.execute(_UNSTAGE["remove"], (array,))
    count_enqueued(db, now, Counter({tuple(where): tasks for *where, tasks in channels}))
    return len(part)


def _demand_open(db: apsw.Connection, stage_id: str) -> None:
    committed_at, _, refused_for = query.one(db, _STAGE["state"], (stage_id,))
    if committed_at is not None or refused_for is not None:
        raise stage_closed(stage_id)


def _names(row: Fresh) -> tuple[bytes | None, float | None, float | None]:
    wanted = claims_of(row)
    if wanted is None:
        return (None, None, None)
    return (wanted.fingerprint, wanted.key_seconds, wanted.unique_seconds)


def _settle(db: apsw.Connection, now: float, stage_id: str) -> Refused | None:
    """Take the names of a stage's tasks in their order, or refuse it whole."""
    db.execute("SAVEPOINT settle")
    try:
        place = 0
        while page := query.rows(db, _COMMIT["keyed"], (stage_id, place, _PAGE)):
            for _, *names in page:
                _settle_one(db, now, keys.Claims(*names))
            place = page[-1][0]
    except KeyConflictError as conflict:
        db.execute("ROLLBACK TO settle")
        refused = Refused(conflict.facts["key"], ids.blob(conflict.facts["task_id"]))
        while drop_part(db, stage_id, _PAGE):
            pass
        db.execute(_COMMIT["refuse"], (stage_id, refused.key, refused.holder))
        db.execute("RELEASE settle")
        return refused
    db.execute("RELEASE settle")
    return None


def _settle_one(db: apsw.Connection, now: float, wanted: keys.Claims) -> None:
    holder = keys.settle(db, now, wanted)
    if holder is not None:
        db.execute(_COMMIT["lose"], (wanted.task, holder))
        db.execute(_COMMIT["drop_task"], (wanted.task,))
        db.execute(_COMMIT["drop_payload"], (wanted.task,))
