"""Redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidegate.store.common import ids, operations, sending
from tidegate.store.common.dead import history_note
from tidegate.store.common.text import storable
from tidegate.store.operation_rows import PLAIN_REDRIVE, Payloads, RedriveTerms
from tidegate.store.rows import ActionStatus
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.actions import apply_each, record_action
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession

_REDRIVE = load("redrive")


def redrive(
    db: apsw.Connection,
    now: float,
    task_ids: Sequence[str],
    *,
    args: Payloads | None = None,
    terms: RedriveTerms = PLAIN_REDRIVE,
) -> dict[str, ActionStatus]:
    """Send dead tasks back to the main queue; return a status per id.

    A task that is not dead, or whose unique name another live task holds, is refused.
    """
    payloads = {ids.blob_or_none(task_id): payload for task_id, payload in (args or {}).items()}

    def apply(task: bytes, table: str) -> bool:
        return table == "dead" and _redrive_one(db, now, task, payloads.get(task), terms)

    return apply_each(db, task_ids, apply)


def purge(db: apsw.Connection, now: float, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Delete dead tasks for good, with payload and history; return a status per id."""

    def apply(task: bytes, table: str) -> bool:
        if table != "dead":
            return False
        keys.free_key(db, task)  # only a person's purge frees the key; retention does not
        delete_tasks(db, (task,))
        return True

    return apply_each(db, task_ids, apply)


def _redrive_one(
    db: apsw.Connection, now: float, task: bytes, payload: tuple[bytes, str] | None, terms: RedriveTerms
) -> bool:
    run, queue, *channel, unique_name = query.one(db, _REDRIVE["letter"], (task,))
    if unique_name is not None:
        wanted = keys.WantedNames(task, channel[-1], b"", None, 0.0, unique_name, None)
        if keys.take_names(db, now, wanted) is not None:
            return False
    if payload is not None:
        db.execute(_REDRIVE["payload"], (task, *payload))
    queue = queue if terms.to_queue is None else storable(terms.to_queue)
    db.execute(_REDRIVE["leave"], (task,))
    db.execute(_REDRIVE["ready"], (task, queue, *channel, now + terms.rank_delay, now, run))
    db.execute(_REDRIVE["reset"], (task, now, queue, terms.keeps_attempts))
    record_action(db, now, task, "redriven", history_note(terms, has_new_args=payload is not None))
    return True


def redrive_within(db: SqliteSession) -> sending.Redrive:
    """Return a function that redrives in the transaction of this session."""

    async def redrive_letters(
        task_ids: Sequence[str], args: Payloads | None, terms: RedriveTerms
    ) -> dict[str, ActionStatus]:
        return redrive(db.link, db.at, task_ids, args=args, terms=terms)

    return redrive_letters


def purge_within(db: SqliteSession) -> operations.Purge:
    """Return a function that purges in the transaction of this session."""

    async def purge_letters(task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        return purge(db.link, db.at, task_ids)

    return purge_letters
