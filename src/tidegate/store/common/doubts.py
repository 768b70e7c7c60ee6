"""The ledger of doubts: find calls in doubt, list them, and record what people decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.step import DoubtAnswer, DoubtState, OnDoubt, StepState
from tidegate.store.common.session import Session
from tidegate.store.common.steps import UNANSWERED
from tidegate.store.common.text import storable
from tidegate.store.rows import ActionStatus
from tidegate.store.step_rows import DecidedLetter, DoubtRow

_LARGEST_ID = 2**63 - 1
_DECIDED = {
    DoubtAnswer.REPEAT: (StepState.FAILED, DoubtState.REPEATED),
    DoubtAnswer.ACCEPT: (StepState.DONE, DoubtState.ACCEPTED),
    DoubtAnswer.REJECT: (StepState.REJECTED, DoubtState.REJECTED),
}
"""What a person's answer makes of the step and of the entry."""


class _Entry(NamedTuple):
    """An entry that a person decides about."""

    id: int
    task: Any
    key: str
    state: str
    resolved_by: str
    note: str


async def has_new_doubts(db: Session) -> bool:
    """Return whether an open step, whose run is over, is not in the ledger."""
    return bool(await db.value(db.sql("doubts")["has_new"]))


async def find_doubts(db: Session, limit: int = 500) -> int:
    """Enter each open step whose run is over in the ledger; return how many entries are new."""
    sql = db.sql("doubts")
    steps = [(task, key) for task, key in await db.rows(sql["lock_new"], limit)]
    # Another statement: what it sees of a locked step and its run is what was committed last.
    found = await db.run_each(sql["enter"], steps, db.at, UNANSWERED)
    await db.run_each(sql["mark"], steps)
    return len(found)


async def list_doubts(
    db: Session,
    *,
    state: DoubtState | None = DoubtState.OPEN,
    task_id: str | None = None,
    tenant: str | None = None,
    function: str | None = None,
    upstream: str | None = None,
    sent_before: float | None = None,
    after: int | None = None,
    limit: int = 100,
) -> list[DoubtRow]:
    """Return entries of the ledger by id."""
    task = None if task_id is None else db.id(task_id)
    if task_id is not None and task is None:
        return []
    start = 0 if after is None else min(after, _LARGEST_ID)
    texts = (None if text is None else storable(text) for text in (tenant, function, upstream))
    sql, values = db.sql("doubts"), (start, limit, state, *texts, sent_before)
    if task is not None:
        rows = await db.rows(sql["list_of_task"], *values, task)
    else:
        rows = await db.rows(sql["list_open" if state is DoubtState.OPEN else "list"], *values)
    return [_doubt_row(db, row) for row in rows]


async def count_open_doubts(db: Session, task_ids: Sequence[str]) -> dict[str, int]:
    """Return how many entries of each task wait for a person; tasks without any are left out."""
    given = {found: task_id for task_id in task_ids if (found := db.id(task_id)) is not None}
    rows = await db.rows(db.sql("doubts")["count_open"], db.array(given)) if given else ()
    by_text = {db.text(found): task_id for found, task_id in given.items()}
    return {by_text[db.text(task)]: count for task, count in rows}


async def resolve_doubts(
    db: Session,
    doubt_ids: Sequence[int],
    answer: DoubtAnswer,
    *,
    data: bytes = b"",
    codec: str = "",
    by: str,
    note: str = "",
    tenant: str | None = None,
) -> Mapping[int, ActionStatus]:
    """Record what a person decided about these entries; return a status for each."""
    sql, (step_state, state) = db.sql("doubts"), _DECIDED[answer]
    wanted = msgspec.json.encode(sorted({each for each in doubt_ids if 0 < each <= _LARGEST_ID})).decode()
    name = None if tenant is None else storable(tenant)
    await db.rows(sql["lock"], wanted, name)
    entries = {entry.id: entry for entry in map(_Entry._make, await db.rows(sql["entries"], wanted, name))}
    by, note = storable(by), storable(note[:MESSAGE_LIMIT])
    decided = [entry for entry in entries.values() if entry.state == DoubtState.OPEN]
    result = (data, storable(codec)) if answer is DoubtAnswer.ACCEPT else (None, "")
    steps = [(entry.task, entry.key) for entry in decided]
    await db.run_each(sql["decide_step"], steps, db.at, step_state, *result)
    await db.run_each(sql["decide"], [(entry.id,) for entry in decided], db.at, state, by, note)

    def status(doubt_id: int) -> ActionStatus:
        entry = entries.get(doubt_id)
        if entry is None:
            return ActionStatus.UNKNOWN
        # The same decision of the same person is a resend.
        same = entry.state == state and (entry.resolved_by, entry.note) == (by, note)
        return ActionStatus.DONE if same or entry.state == DoubtState.OPEN else ActionStatus.REFUSED

    return {doubt_id: status(doubt_id) for doubt_id in doubt_ids}


async def list_decided_letters(
    db: Session, *, task_ids: Sequence[str] | None = None, after: str | None = None, limit: int = 100
) -> list[DecidedLetter]:
    """Return dead letters that waited for a person and wait no more, by task id."""
    sql = db.sql("doubts")
    if task_ids is None:
        rows = await db.rows(sql["decided"], None if after is None else db.id(after), limit)
    else:
        rows = await db.rows(sql["decided_of"], db.array(_known(db, task_ids))) if task_ids else ()
    return [DecidedLetter(db.text(task), by or "") for task, by in rows]


async def find_letters_in_doubt(db: Session, task_ids: Sequence[str]) -> list[str]:
    """Return those of these tasks that are dead and whose calls may have been processed."""
    known = _known(db, task_ids)
    if not known:
        return []
    return [db.text(task) for task in await db.column(db.sql("doubts")["letters_in_doubt"], db.array(known))]


async def repeat_doubts(db: Session, tasks: Sequence[Any], by: str, note: str) -> None:
    """Let the next runs of these dead tasks, given by their stored ids, repeat their calls in doubt."""
    sql, rows = db.sql("doubts"), [(task,) for task in tasks]
    await db.run_each(sql["repeat"], rows, db.at, UNANSWERED, storable(by), storable(note))
    await db.run_each(sql["repeat_steps"], rows, db.at)


async def reopen_doubts(db: Session, tasks: Sequence[Any], note: str) -> None:
    """Undo `repeat_doubts` with this note, for tasks that have not run since."""
    sql, rows = db.sql("doubts"), [(task,) for task in tasks]
    await db.run_each(sql["reopen_steps"], rows, note)
    await db.run_each(sql["reopen"], rows, note)


def _known(db: Session, task_ids: Sequence[str]) -> list[Any]:
    return [found for task_id in task_ids if (found := db.id(task_id)) is not None]


def _doubt_row(db: Session, row: Sequence[Any]) -> DoubtRow:
    (doubt_id, task, function, queue, tenant, step, key, run, attempt, state, on_doubt, *rest) = row
    return DoubtRow(
        doubt_id, db.text(task), function, queue, tenant, step, key, run, attempt, DoubtState(state),
        OnDoubt(on_doubt), *rest,
    )  # fmt: skip
