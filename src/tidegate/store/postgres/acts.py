"""What people do to tasks that are not dead: cancel, give another priority, hurry.

A task moves while it is looked for. So each act is tried on all ids at once, and again on those that were
not met, until what is left is known to be out of its reach.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidegate.domain.spec import Priority
from tidegate.domain.states import WAITING
from tidegate.store import ids
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import ActAnswer, CancelAnswer
from tidegate.store.text import storable

T = TypeVar("T")

_ACT = load("act")
_CANCEL = load("cancel")
_FREE_UNIQUE = load("keys")["free_unique"]
_REPRIORITISE = load("reprioritise")["standing"]
_HURRY = load("hurry")["now"]

_STANDING = frozenset({"ready", "staged", *(str(state) for state in WAITING)})
"""Where a task is that neither runs nor is final."""


async def cancel(
    db: PostgresSession, task_ids: Sequence[str], why: str, *, force: bool
) -> dict[str, CancelAnswer]:
    """Cancel tasks wherever they are; ask running ones; answer per id."""

    async def attempt(left: list[str]) -> dict[str, CancelAnswer]:
        asked = await db.column(_CANCEL["ask"], left, db.at, force)
        ended = await db.column(_CANCEL["end"], left, db.at)
        if ended:
            await db.run(_FREE_UNIQUE, ended)
        met = dict.fromkeys(map(str, asked), CancelAnswer.ASKED)
        return met | dict.fromkeys(map(str, ended), CancelAnswer.CANCELLED)

    met, out_of_reach = await _each(db, task_ids, attempt, _STANDING | {"running"})
    await keep_act(db, list(met), "cancel requested", why)
    return _by_given(task_ids, met | dict.fromkeys(out_of_reach, CancelAnswer.FINISHED), CancelAnswer.UNKNOWN)


async def reprioritise(
    db: PostgresSession, task_ids: Sequence[str], priority: Priority
) -> dict[str, ActAnswer]:
    """Give waiting or ready tasks another priority; their rank stays."""

    async def attempt(left: list[str]) -> dict[str, ActAnswer]:
        met = await db.column(_REPRIORITISE, left, int(priority))
        return dict.fromkeys(map(str, met), ActAnswer.DONE)

    met, out_of_reach = await _each(db, task_ids, attempt, _STANDING)
    await keep_act(db, list(met), "priority changed", f"to {priority.word}")
    return _by_given(task_ids, met | dict.fromkeys(out_of_reach, ActAnswer.REFUSED), ActAnswer.UNKNOWN)


async def hurry(db: PostgresSession, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
    """Make scheduled and retrying tasks ready now; ready ones are so already."""
    hurried: list[str] = []

    async def attempt(left: list[str]) -> dict[str, ActAnswer]:
        met = await db.rows(_HURRY, left, db.at)
        hurried.extend(str(task_id) for task_id, waited in met if waited)
        return {str(task_id): ActAnswer.DONE for task_id, _ in met}

    met, out_of_reach = await _each(db, task_ids, attempt, frozenset({"scheduled", "retrying", "staged"}))
    await keep_act(db, hurried, "hurried", "")
    others = {
        task_id: ActAnswer.DONE if place == "ready" else ActAnswer.REFUSED
        for task_id, place in out_of_reach.items()
    }
    return _by_given(task_ids, met | others, ActAnswer.UNKNOWN)


async def keep_act(db: PostgresSession, tasks: Sequence[str], kind: str, why: str) -> None:
    """Note an act for the histories of these tasks."""
    if tasks:
        await db.run(_ACT["keep"], tasks, db.at, kind, storable(why))


async def _each(
    db: PostgresSession,
    task_ids: Sequence[str],
    attempt: Callable[[list[str]], Awaitable[dict[str, T]]],
    within_reach: frozenset[str],
) -> tuple[dict[str, T], dict[str, str]]:
    """Try an act until each task was met or is out of its reach; return answers, and where the others are."""
    left = sorted({known for task_id in task_ids if (known := ids.known(task_id)) is not None})
    met: dict[str, T] = {}
    out_of_reach: dict[str, str] = {}
    while left:
        met |= await attempt(left)
        places = {str(task_id): place for task_id, place in await _places(db, left, met)}
        out_of_reach |= {task_id: place for task_id, place in places.items() if place not in within_reach}
        left = [task_id for task_id, place in places.items() if place in within_reach]
    return met, out_of_reach


async def _places(db: PostgresSession, tasks: Sequence[str], met: dict[str, T]) -> list[tuple[object, str]]:
    missed = [task_id for task_id in tasks if task_id not in met]
    return await db.rows(_ACT["where"], missed) if missed else []


def _by_given(task_ids: Sequence[str], answers: dict[str, T], otherwise: T) -> dict[str, T]:
    return {task_id: answers.get(ids.known(task_id) or "", otherwise) for task_id in task_ids}
