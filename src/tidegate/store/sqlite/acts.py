"""What people do to tasks that are not dead: cancel, give another priority, hurry.

Each is one write transaction, so nothing moves between the look and the act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import apsw

from tidegate.domain.spec import Priority
from tidegate.domain.states import WAITING
from tidegate.store import ids
from tidegate.store.rows import ActAnswer, CancelAnswer
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.enqueue import count_enqueued
from tidegate.store.sqlite.finish import count
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable
from tidegate.store.totals import Totals

_ACT = load("act")
_CANCEL = load("cancel")
_REPRIORITISE = load("reprioritise")
_HURRY = load("hurry")

_LEAVE = {"ready": _CANCEL["leave_ready"], "staged": _CANCEL["leave_stage"]}
"""How a task leaves where it is; those of the waiting states leave alike."""

_STANDING = frozenset({"ready", "staged", *(str(state) for state in WAITING)})
"""Where a task is that neither runs nor is final."""


def cancel(
    db: apsw.Connection, now: float, task_ids: Sequence[str], why: str, *, force: bool
) -> dict[str, CancelAnswer]:
    """Cancel tasks wherever they are; ask running ones; answer per id."""
    totals = Totals()
    answers = {
        task_id: _cancel_one(db, now, task_id, why, totals, force=force) for task_id in _sorted(task_ids)
    }
    count(db, now, totals)
    return {task_id: answers[task_id] for task_id in task_ids}


def reprioritise(
    db: apsw.Connection, now: float, task_ids: Sequence[str], priority: Priority
) -> dict[str, ActAnswer]:
    """Give waiting or ready tasks another priority; their rank stays."""

    def act(task: bytes, where: str) -> bool:
        if where not in _STANDING:
            return False
        for statement in _REPRIORITISE.values():
            db.execute(statement, (task, int(priority)))
        keep_act(db, now, task, "priority changed", f"to {priority.word}")
        return True

    return answer_each(db, task_ids, act)


def hurry(db: apsw.Connection, now: float, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
    """Make scheduled and retrying tasks ready now; ready ones are so already."""

    def act(task: bytes, where: str) -> bool:
        if where == "ready":
            return True
        if where not in ("scheduled", "retrying", "staged"):
            return False
        if where == "staged":
            if query.value(db, _HURRY["staged"], (task,)) is None:
                return True
        else:
            db.execute(_HURRY["ready"], (task, now))
            db.execute(_HURRY["leave"], (task,))
        keep_act(db, now, task, "hurried", "")
        return True

    return answer_each(db, task_ids, act)


def answer_each(
    db: apsw.Connection, task_ids: Sequence[str], act: Callable[[bytes, str], bool]
) -> dict[str, ActAnswer]:
    """Do an act on each task that exists, given its id and where it is; answer per id."""
    answers = dict.fromkeys(task_ids, ActAnswer.UNKNOWN)
    for task_id in _sorted(task_ids):
        task = ids.known_blob(task_id)
        where = whereabouts(db, task)
        if task is not None and where is not None:
            answers[task_id] = ActAnswer.DONE if act(task, where) else ActAnswer.REFUSED
    return answers


def whereabouts(db: apsw.Connection, task: bytes | None) -> str | None:
    """Return the table, or the waiting state, a task is in; None if there is no such task."""
    found: str | None = query.value(db, _ACT["where"], (task,))
    return found


def keep_act(db: apsw.Connection, now: float, task: bytes, kind: str, why: str) -> None:
    """Note an act for the task's history."""
    db.execute(_ACT["keep"], (task, now, kind, storable(why)))


def _sorted(task_ids: Sequence[str]) -> list[str]:
    return sorted(set(task_ids))


def _cancel_one(
    db: apsw.Connection, now: float, task_id: str, why: str, totals: Totals, *, force: bool
) -> CancelAnswer:
    task = ids.known_blob(task_id)
    where = whereabouts(db, task)
    if task is None or where is None:
        return CancelAnswer.UNKNOWN
    if where in ("archive", "dead"):
        return CancelAnswer.FINISHED
    keep_act(db, now, task, "cancel requested", why)
    if where == "running":
        db.execute(_CANCEL["ask"], (task, now, force))
        return CancelAnswer.ASKED
    run, ready_at = query.one(db, _LEAVE.get(where, _CANCEL["leave_waiting"]), (task,))
    db.execute(_CANCEL["archive"], (task, run, ready_at, now))
    *channel, unique_name = query.one(db, _CANCEL["names"], (task,))
    queue, function, upstream, tenant = channel
    totals.of((queue, function, upstream, tenant)).cancelled += 1
    if where == "staged":
        count_enqueued(db, now, Counter({(queue, function, upstream, tenant): 1}))
    if unique_name is not None:
        keys.free_unique(db, tenant, unique_name, task)
    return CancelAnswer.CANCELLED
