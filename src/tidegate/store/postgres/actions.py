"""Actions of people on tasks that are not dead: cancel, reprioritise, run now.

A task may change its state while an action looks for it. So each action is tried on all ids in one statement,
and again on the ids it did not find, until the rest are known to be in states to which it does not apply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidegate.domain.spec import Priority
from tidegate.domain.states import WAITING, State
from tidegate.store.common import ids, provider_jobs
from tidegate.store.common.final_hooks import EndedTask
from tidegate.store.common.text import storable
from tidegate.store.postgres.final_hooks import enqueue_hooks
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import ActionStatus, CancelStatus

T = TypeVar("T")

_ACTION = load("actions")
_CANCEL = load("cancel")
_FREE_UNIQUE = load("keys")["free_unique"]
_REPRIORITISE = load("reprioritise")["standing"]
_RUN_NOW = load("run_now")["now"]

_PENDING = frozenset({"ready", "enqueue_batch_task", *(str(state) for state in WAITING)})
"""The tables and states of tasks that are neither running nor final."""


async def cancel(
    db: PostgresSession, task_ids: Sequence[str], *, why: str = "", force: bool = False
) -> dict[str, CancelStatus]:
    """Cancel tasks in any state; ask running ones to stop; return a status per id."""

    async def attempt(left: list[str]) -> dict[str, CancelStatus]:
        asked = await db.column(_CANCEL["ask"], left, db.at, force)
        if not force:
            found = [task_id for task_id in left if task_id not in set(map(str, asked))]
            asked = [*asked, *await provider_jobs.cancel_waiting(db, await db.now(), found)]
            left = [task_id for task_id in left if task_id not in set(map(str, asked))]
        ended = await db.column(_CANCEL["end"], left, db.at)
        if ended:
            await db.run(_FREE_UNIQUE, ended)
            await _enqueue_hooks_of_cancelled(db, [str(task_id) for task_id in ended], why)
        changed = dict.fromkeys(map(str, asked), CancelStatus.REQUESTED)
        return changed | dict.fromkeys(map(str, ended), CancelStatus.CANCELLED)

    changed, out_of_reach = await _apply_to_each(db, task_ids, attempt, _PENDING | {"running"})
    await record_action(db, list(changed), "cancel requested", why)
    return _by_given_id(
        task_ids, changed | dict.fromkeys(out_of_reach, CancelStatus.FINISHED), CancelStatus.UNKNOWN
    )


async def _enqueue_hooks_of_cancelled(db: PostgresSession, task_ids: Sequence[str], why: str) -> None:
    runs = await db.rows(_CANCEL["runs"], task_ids)
    await enqueue_hooks(
        db, [EndedTask(str(task_id), State.CANCELLED, run, "cancelled", "", why) for task_id, run in runs]
    )


async def reprioritise(
    db: PostgresSession, task_ids: Sequence[str], priority: Priority
) -> dict[str, ActionStatus]:
    """Give waiting or ready tasks another priority; their rank does not change."""

    async def attempt(left: list[str]) -> dict[str, ActionStatus]:
        changed = await db.column(_REPRIORITISE, left, int(priority))
        return dict.fromkeys(map(str, changed), ActionStatus.DONE)

    changed, out_of_reach = await _apply_to_each(db, task_ids, attempt, _PENDING)
    await record_action(db, list(changed), "priority changed", f"to {priority.word}")
    return _by_given_id(
        task_ids, changed | dict.fromkeys(out_of_reach, ActionStatus.REFUSED), ActionStatus.UNKNOWN
    )


async def run_now(db: PostgresSession, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Make scheduled and retrying tasks ready now; a ready task counts as done."""
    made_ready: list[str] = []

    async def attempt(left: list[str]) -> dict[str, ActionStatus]:
        changed = await db.rows(_RUN_NOW, left, db.at)
        made_ready.extend(str(task_id) for task_id, waited in changed if waited)
        return {str(task_id): ActionStatus.DONE for task_id, _ in changed}

    changed, out_of_reach = await _apply_to_each(
        db, task_ids, attempt, frozenset({"scheduled", "retrying", "enqueue_batch_task"})
    )
    await record_action(db, made_ready, "run now", "")
    others = {
        task_id: ActionStatus.DONE if table == "ready" else ActionStatus.REFUSED
        for task_id, table in out_of_reach.items()
    }
    return _by_given_id(task_ids, changed | others, ActionStatus.UNKNOWN)


async def record_action(db: PostgresSession, tasks: Sequence[str], kind: str, why: str) -> None:
    """Record an action in the histories of these tasks."""
    if tasks:
        await db.run(_ACTION["insert"], tasks, db.at, kind, storable(why))


async def _apply_to_each(
    db: PostgresSession,
    task_ids: Sequence[str],
    attempt: Callable[[list[str]], Awaitable[dict[str, T]]],
    within_reach: frozenset[str],
) -> tuple[dict[str, T], dict[str, str]]:
    """Try an action until it was applied to each task, or does not apply to the rest.

    Return the statuses, and the tables in which the rest of the tasks are.
    """
    left = sorted({known for task_id in task_ids if (known := ids.canonical_or_none(task_id)) is not None})
    changed: dict[str, T] = {}
    out_of_reach: dict[str, str] = {}
    while left:
        changed |= await attempt(left)
        tables = {str(task_id): table for task_id, table in await _find_tables(db, left, changed)}
        out_of_reach |= {task_id: table for task_id, table in tables.items() if table not in within_reach}
        left = [task_id for task_id, table in tables.items() if table in within_reach]
    return changed, out_of_reach


async def _find_tables(
    db: PostgresSession, tasks: Sequence[str], changed: dict[str, T]
) -> list[tuple[object, str]]:
    missed = [task_id for task_id in tasks if task_id not in changed]
    return await db.rows(_ACTION["where"], missed) if missed else []


def _by_given_id(task_ids: Sequence[str], statuses: dict[str, T], otherwise: T) -> dict[str, T]:
    return {task_id: statuses.get(ids.canonical_or_none(task_id) or "", otherwise) for task_id in task_ids}
