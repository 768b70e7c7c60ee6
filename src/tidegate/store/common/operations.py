"""Operations on many dead letters: their rows, and the steps that maintenance takes.

A step is done only if the operation still has the revision from which the step was planned. So if two
processes plan the same step, only one does it, and a step that is repeated after a lost COMMIT does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.operation_rows import (
    ENDED,
    LetterRow,
    LetterState,
    NewOperation,
    OperationKind,
    OperationRow,
    OperationState,
    RedriveSettings,
    Stratum,
)
from tidegate.store.rows import ActionStatus, TaskFilter

Purge = Callable[[Sequence[str]], Awaitable[Mapping[str, ActionStatus]]]
"""Deletes dead letters in the current transaction. Each back end has its own."""

_FILTER = msgspec.json.Decoder(TaskFilter)
_SETTINGS = msgspec.json.Decoder(RedriveSettings)


class StoredOperation(NamedTuple):
    """An operation, as `operations` reads it."""

    id: str
    kind: str
    state: str
    started_by: str
    tenant: str | None
    filter: str
    settings: str
    preview: int
    chosen: int
    sent: int
    succeeded: int
    died: int
    cancelled: int
    skipped: int
    undone: int
    cursor: Any
    canary: int
    canary_at: float | None
    note: str
    started_at: float
    changed_at: float
    ended_at: float | None
    revision: int


# --- rows -------------------------------------------------------------------------------------------------


async def add_operation(db: Session, operation: NewOperation, task_ids: Sequence[str] = ()) -> bool:
    """Store a new operation and the letters in `task_ids`; return False if it already exists."""
    sql, now = db.sql("operations"), await db.now()
    which = "" if operation.filter is None else msgspec.json.encode(operation.filter).decode()
    settings = msgspec.json.encode(operation.settings).decode()
    values = (
        operation.id,
        str(operation.kind),
        str(operation.state),
        storable(operation.started_by),
        None if operation.tenant is None else storable(operation.tenant),
        which,
        settings,
        operation.preview,
    )
    if await db.value(sql["add"], *values, now) is None:
        return False
    if task_ids:
        await _choose(db, operation.id, operation.settings, dict.fromkeys(task_ids, ""))
    return True


async def get_operation(db: Session, operation_id: str) -> OperationRow | None:
    """Return the operation with this id; None if it does not exist."""
    row = await db.row(db.sql("operations")["one"], operation_id)
    return None if row is None else _operation(db, row)


async def list_operations(
    db: Session, *, tenant: str | None = None, after: str | None = None, limit: int = 50
) -> list[OperationRow]:
    """Return operations, the latest first, starting after the id `after`."""
    last = None if after is None else await get_operation(db, after)
    start = (None, None) if last is None else (last.started_at, last.id)
    rows = await db.rows(db.sql("operations")["page"], tenant, *start, limit)
    return [_operation(db, row) for row in rows]


async def list_open_operations(db: Session) -> list[OperationRow]:
    """Return the operations that have a next step, or letters without an outcome."""
    return [_operation(db, row) for row in await db.rows(db.sql("operations")["open"])]


async def find_operation_ids(db: Session, smallest: str, largest: str) -> list[str]:
    """Return at most two ids of operations from `smallest` to `largest`."""
    return list(await db.column(db.sql("operations")["ids"], smallest, largest))


async def list_letters(
    db: Session,
    operation_id: str,
    *,
    state: LetterState | None = None,
    after: str | None = None,
    limit: int = 100,
) -> list[LetterRow]:
    """Return the letters of an operation in the order of their task ids."""
    last = None if after is None else db.id(after)
    values = (operation_id, None if state is None else str(state), last, limit)
    return [_letter(db, *row) for row in await db.rows(db.sql("operations")["letters"], *values)]


def _operation(db: Session, row: Sequence[Any]) -> OperationRow:
    stored = StoredOperation._make(row)
    which = _FILTER.decode(stored.filter) if stored.filter else None
    decoded = {
        "kind": OperationKind(stored.kind),
        "state": OperationState(stored.state),
        "filter": which,
        "settings": _SETTINGS.decode(stored.settings),
        "cursor": None if stored.cursor is None else db.text(stored.cursor),
    }
    return OperationRow(**stored._asdict() | decoded)


def _letter(db: Session, task: Any, state: str, *rest: Any) -> LetterRow:
    queue, upstream, function, tenant, in_canary, *outcome = rest
    return LetterRow(
        db.text(task), LetterState(state), queue, upstream, function, tenant, bool(in_canary), *outcome
    )


# --- steps ------------------------------------------------------------------------------------------------


async def set_operation_state(
    db: Session, operation_id: str, revision: int, state: OperationState, note: str
) -> bool:
    """Move an operation to another state; return False, and change nothing, if the revision is old."""
    if not await take_revision(db, operation_id, revision):
        return False
    await write_state(db, operation_id, state, note)
    return True


async def set_operation_note(db: Session, operation_id: str, note: str) -> None:
    """Store what an operation waits for."""
    await db.run(db.sql("operations")["set_note"], operation_id, storable(note))


async def choose_letters(
    db: Session, operation: OperationRow, letters: Mapping[str, str], *, cursor: str | None = None
) -> bool:
    """Record letters of a redrive, each with why it is skipped; return False if the revision is old.

    Letters in doubt are skipped too unless the settings repeat them. Letters that are no longer dead are left
    out.
    """
    if not await take_revision(db, operation.id, operation.revision):
        return False
    await _choose(db, operation.id, operation.settings, letters)
    if cursor is not None:
        await db.run(db.sql("choose_letters")["advance"], operation.id, db.id(cursor))
    return True


async def list_strata(db: Session, operation_id: str) -> list[Stratum]:
    """Return how many letters are chosen, for each function and tenant."""
    return [Stratum(*row) for row in await db.rows(db.sql("choose_letters")["strata"], operation_id)]


async def begin_canary(db: Session, operation: OperationRow, picks: Sequence[Stratum]) -> bool:
    """Mark a number of letters of each stratum as the canary; return False if the revision is old."""
    if not await take_revision(db, operation.id, operation.revision):
        return False
    sql = db.sql("choose_letters")
    rows = [(each.function, each.tenant, each.letters) for each in picks if each.letters]
    marked = await db.run_each(sql["mark_canary"], rows, operation.id)
    await db.run(sql["set_canary"], operation.id, len(marked))
    await write_state(db, operation.id, OperationState.CANARY, "")
    return True


async def find_old_operation(db: Session, kept_seconds: float) -> str | None:
    """Return an operation that ended longer ago than this; None if there is none."""
    before = await db.now() - kept_seconds
    found: str | None = await db.value(db.sql("delete_old_operations")["old"], before)
    return found


async def delete_old_operations(db: Session, kept_seconds: float, limit: int) -> int:
    """Delete letters of one old operation, and after the last letter the operation; return how many rows."""
    sql = db.sql("delete_old_operations")
    operation_id = await find_old_operation(db, kept_seconds)
    if operation_id is None:
        return 0
    letters = await db.run(sql["letters"], operation_id, limit)
    return letters if letters >= limit else letters + await db.run(sql["operation"], operation_id)


async def purge_letters(
    db: Session, operation_id: str, task_ids: Sequence[str], purge: Purge
) -> dict[str, ActionStatus] | None:
    """Delete these dead letters and count them; return a status per id, or None if the purge has ended."""
    now = await db.now()
    if await db.value(db.sql("operations")["go_on"], operation_id, str(OperationState.PURGING), now) is None:
        return None
    statuses = dict(await purge(task_ids))
    purged = list(statuses.values()).count(ActionStatus.DONE)
    skipped = len(statuses) - purged
    await add_counts(db, operation_id, chosen=len(statuses), sent=purged, cancelled=purged, skipped=skipped)
    return statuses


async def take_revision(db: Session, operation_id: str, revision: int) -> bool:
    """Lock an operation until the commit and raise its revision; return False if the revision is old."""
    sql = db.sql("operations")
    return await db.value(sql["take"], operation_id, revision, await db.now()) is not None


async def write_state(db: Session, operation_id: str, state: OperationState, note: str) -> None:
    """Write the state of a locked operation, and when it ended if it has."""
    ended_at = await db.now() if state in ENDED else None
    await db.run(db.sql("operations")["set_state"], operation_id, str(state), storable(note), ended_at)


async def add_counts(
    db: Session,
    operation_id: str,
    *,
    chosen: int = 0,
    sent: int = 0,
    succeeded: int = 0,
    died: int = 0,
    cancelled: int = 0,
    skipped: int = 0,
    undone: int = 0,
) -> None:
    """Add to the counts of a locked operation."""
    counts = (chosen, sent, succeeded, died, cancelled, skipped, undone)
    if any(counts):
        await db.run(db.sql("operations")["count"], operation_id, *counts)


async def _choose(
    db: Session, operation_id: str, settings: RedriveSettings, letters: Mapping[str, str]
) -> None:
    to_queue = None if settings.to_queue is None else storable(settings.to_queue)
    given = ((db.id(task_id), lot_of(task_id), why) for task_id, why in sorted(letters.items()))
    recorded = await db.run_each(
        db.sql("choose_letters")["choose"],
        [row for row in given if row[0] is not None],
        operation_id,
        to_queue,
        settings.repeats_doubts,
    )
    states = [state for _, state in recorded]
    await add_counts(db, operation_id, chosen=states.count("chosen"), skipped=states.count("skipped"))


def lot_of(task_id: str) -> int:
    """Return a random number that is fixed for each letter: the last bits of its id."""
    return int(task_id[-8:], 16) >> 1
