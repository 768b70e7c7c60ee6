"""Actions of people on tasks that are not dead: cancel, reprioritise, run now.

Each is one write transaction, so no task changes state between the check and the action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import apsw

from tidegate.domain.spec import Priority
from tidegate.domain.states import WAITING, State
from tidegate.store.common import ids, provider_jobs
from tidegate.store.common.final_hooks import EndedTask
from tidegate.store.common.rollup_totals import RollupTotals
from tidegate.store.common.text import storable
from tidegate.store.rows import ActionStatus, CancelStatus
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.enqueue import count_enqueued
from tidegate.store.sqlite.finish import count, enqueue_hooks
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

_ACTION = load("actions")
_CANCEL = load("cancel")
_REPRIORITISE = load("reprioritise")
_RUN_NOW = load("run_now")

_LEAVE = {"ready": _CANCEL["leave_ready"], "enqueue_batch_task": _CANCEL["leave_batch"]}
"""The statements that remove a task from its table. All waiting states share one."""

_PENDING = frozenset({"ready", "enqueue_batch_task", *(str(state) for state in WAITING)})
"""The tables and states of tasks that are neither running nor final."""


def cancel(
    db: apsw.Connection, now: float, task_ids: Sequence[str], *, why: str = "", force: bool = False
) -> dict[str, CancelStatus]:
    """Cancel tasks in any state; ask running ones to stop; return a status per id."""
    totals, hooked = RollupTotals(), list[EndedTask]()
    statuses = {
        task_id: _cancel_one(db, now, task_id, why, totals, hooked, force=force)
        for task_id in _sorted(task_ids)
    }
    count(db, now, totals)
    enqueue_hooks(db, now, hooked)
    return {task_id: statuses[task_id] for task_id in task_ids}


def reprioritise(
    db: apsw.Connection, now: float, task_ids: Sequence[str], priority: Priority
) -> dict[str, ActionStatus]:
    """Give waiting or ready tasks another priority; their rank does not change."""

    def apply(task: bytes, table: str) -> bool:
        if table not in _PENDING:
            return False
        for statement in _REPRIORITISE.values():
            db.execute(statement, (task, int(priority)))
        record_action(db, now, task, "priority changed", f"to {priority.word}")
        return True

    return apply_each(db, task_ids, apply)


def run_now(db: apsw.Connection, now: float, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Make scheduled and retrying tasks ready now; a ready task counts as done."""

    def apply(task: bytes, table: str) -> bool:
        if table == "ready":
            return True
        if table not in ("scheduled", "retrying", "enqueue_batch_task"):
            return False
        if table == "enqueue_batch_task":
            if query.value(db, _RUN_NOW["enqueue_batch_task"], (task,)) is None:
                return True
        else:
            db.execute(_RUN_NOW["ready"], (task, now))
            db.execute(_RUN_NOW["leave"], (task,))
        record_action(db, now, task, "run now", "")
        return True

    return apply_each(db, task_ids, apply)


def apply_each(
    db: apsw.Connection, task_ids: Sequence[str], apply: Callable[[bytes, str], bool]
) -> dict[str, ActionStatus]:
    """Apply an action to each task that exists, given its id and table; return a status per id."""
    statuses = dict.fromkeys(task_ids, ActionStatus.UNKNOWN)
    for task_id in _sorted(task_ids):
        task = ids.blob_or_none(task_id)
        table = find_table(db, task)
        if task is not None and table is not None:
            statuses[task_id] = ActionStatus.DONE if apply(task, table) else ActionStatus.REFUSED
    return statuses


def find_table(db: apsw.Connection, task: bytes | None) -> str | None:
    """Return the table or the waiting state in which a task is; None if there is no such task."""
    found: str | None = query.value(db, _ACTION["where"], (task,))
    return found


def record_action(db: apsw.Connection, now: float, task: bytes, kind: str, why: str) -> None:
    """Record an action in the task's history."""
    db.execute(_ACTION["insert"], (task, now, kind, storable(why)))


def _sorted(task_ids: Sequence[str]) -> list[str]:
    return sorted(set(task_ids))


def _cancel_one(
    db: apsw.Connection,
    now: float,
    task_id: str,
    why: str,
    totals: RollupTotals,
    hooked: list[EndedTask],
    *,
    force: bool,
) -> CancelStatus:
    task = ids.blob_or_none(task_id)
    table = find_table(db, task)
    if task is None or table is None:
        return CancelStatus.UNKNOWN
    if table in ("archive", "dead"):
        return CancelStatus.FINISHED
    record_action(db, now, task, "cancel requested", why)
    if table == "running":
        db.execute(_CANCEL["ask"], (task, now, force))
        return CancelStatus.REQUESTED
    if not force and complete(provider_jobs.cancel_waiting(SqliteSession(db, now), now, [task])):
        return CancelStatus.REQUESTED
    run, ready_at = query.one(db, _LEAVE.get(table, _CANCEL["leave_waiting"]), (task,))
    db.execute(_CANCEL["archive"], (task, run, ready_at, now))
    *channel, unique_name, has_on_final = query.one(db, _CANCEL["names"], (task,))
    queue, function, upstream, tenant = channel
    totals.of((queue, function, upstream, tenant)).cancelled += 1
    if table == "enqueue_batch_task":
        count_enqueued(db, now, Counter({(queue, function, upstream, tenant): 1}))
    if unique_name is not None:
        keys.free_unique(db, tenant, unique_name, task)
    if has_on_final:
        hooked.append(EndedTask(task, State.CANCELLED, run, "cancelled", "", why))
    return CancelStatus.CANCELLED
