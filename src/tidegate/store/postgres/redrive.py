"""Redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.store.common import ids, operations, sending
from tidegate.store.common.dead import history_note
from tidegate.store.common.text import storable
from tidegate.store.operation_rows import PLAIN_REDRIVE, Payloads, RedriveTerms
from tidegate.store.postgres.deletion import delete_tasks
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import ActionStatus

_REDRIVE = load("redrive")
_FREE_KEYS = load("purge")["free_keys"]


async def redrive(
    db: PostgresSession,
    task_ids: Sequence[str],
    *,
    args: Payloads | None = None,
    terms: RedriveTerms = PLAIN_REDRIVE,
) -> dict[str, ActionStatus]:
    """Send dead tasks back to the main queue; return a status per id.

    A task that is not dead, or whose unique name another live task holds, is refused.
    """
    letters = await _lock(db, task_ids)
    back = [task_id for task_id, name in letters.items() if await _takes_again(db, task_id, name)]
    payloads = {ids.canonical_or_none(task_id): payload for task_id, payload in (args or {}).items()}
    changed = [(task_id, *payloads[task_id]) for task_id in back if task_id in payloads]
    await db.run_many(_REDRIVE["payload"], changed)
    await db.run(
        _REDRIVE["redrive"],
        db.at,
        back,
        [task_id for task_id, *_ in changed],
        storable(history_note(terms, has_new_args=False)),
        storable(history_note(terms, has_new_args=True)),
        None if terms.to_queue is None else storable(terms.to_queue),
        terms.keeps_attempts,
        terms.rank_delay,
    )
    return await _answers(db, task_ids, back)


async def purge(db: PostgresSession, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Delete dead tasks for good, with payload and history; return a status per id."""
    letters = list(await _lock(db, task_ids))
    statuses = await _answers(db, task_ids, letters)
    await db.run(_FREE_KEYS, letters)  # only a person's purge frees the key; retention does not
    await delete_tasks(db, letters)
    return statuses


Name = tuple[str, str] | None
"""The tenant and the unique name that a dead task must take again to be redriven; None if it has no such
name."""


async def _lock(db: PostgresSession, task_ids: Sequence[str]) -> dict[str, Name]:
    """Lock these dead letters until the transaction ends; return the name that each must take again."""
    known = sorted({found for task_id in task_ids if (found := ids.canonical_or_none(task_id)) is not None})
    rows = await db.rows(_REDRIVE["letters"], known)
    return {
        str(task_id): None if unique_name is None else (tenant, unique_name)
        for task_id, tenant, unique_name in rows
    }


async def _takes_again(db: PostgresSession, task_id: str, name: Name) -> bool:
    return name is None or await db.value(_REDRIVE["take_name"], db.at, task_id, *name) is None


async def _answers(
    db: PostgresSession, task_ids: Sequence[str], done: Collection[str]
) -> dict[str, ActionStatus]:
    """Return a status for each id as the caller wrote it: done, refused, or unknown if no task has it."""
    given = {task_id: ids.canonical_or_none(task_id) for task_id in task_ids}
    wanted = [task_id for task_id in given.values() if task_id is not None]
    known = set(map(str, await db.column(_REDRIVE["known"], wanted)))

    def answer(task_id: str | None) -> ActionStatus:
        if task_id in done:
            return ActionStatus.DONE
        return ActionStatus.REFUSED if task_id in known else ActionStatus.UNKNOWN

    return {task_id: answer(found) for task_id, found in given.items()}


def redrive_within(db: PostgresSession) -> sending.Redrive:
    """Return a function that redrives in the transaction of this session."""

    async def redrive_letters(
        task_ids: Sequence[str], args: Payloads | None, terms: RedriveTerms
    ) -> dict[str, ActionStatus]:
        return await redrive(db, task_ids, args=args, terms=terms)

    return redrive_letters


def purge_within(db: PostgresSession) -> operations.Purge:
    """Return a function that purges in the transaction of this session."""

    async def purge_letters(task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        return await purge(db, task_ids)

    return purge_letters
