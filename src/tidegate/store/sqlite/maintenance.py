"""Delete expired rows."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidegate.domain.retention import FinalTable
from tidegate.store.common import ids
from tidegate.store.common.periods import DAYS_KEPT
from tidegate.store.common.upkeep import (
    AUDIT_KEPT_SECONDS,
    BATCH_KEPT_SECONDS,
    ROLLUP_KEPT_SECONDS,
    TICK_KEPT_SECONDS,
    fired_ticks_kept,
)
from tidegate.store.sqlite import query
from tidegate.store.sqlite.batches import drop_part
from tidegate.store.sqlite.deletion import delete_tasks
from tidegate.store.sqlite.statements import load

_EXPIRED = load("delete_expired")
_FINAL = load("delete_final_tasks")
_DEATHS = load("deaths")
_WAITS = (load("task_waits"), load("cached"))
_FORGET_BATCH = load("drop_batch")["forget_batch"]


def precheck_delete_expired(db: apsw.Connection, now: float, *, ticks_seconds: float) -> int | None:
    """Return 0 if nothing has expired; None otherwise."""
    something = (
        query.value(db, _EXPIRED["has_expired_keys"], (now,))
        or query.value(db, _EXPIRED["has_expired_permits"], (now,))
        or query.value(db, _EXPIRED["has_expired_events"], (now,))
        or any(query.value(db, waits["left_behind"]) for waits in _WAITS)
        or query.value(db, _EXPIRED["has_expired_cached"], (now,))
        or query.value(db, _EXPIRED["stale_batches"], (now - BATCH_KEPT_SECONDS,))
        or query.value(db, _EXPIRED["has_old_rollups"], (_minute(now - ROLLUP_KEPT_SECONDS),))
        or query.value(db, _DEATHS["has_old_days"], (_minute(now) - DAYS_KEPT,))
        or query.value(db, _EXPIRED["has_old_audit"], (now - AUDIT_KEPT_SECONDS,))
        or query.value(db, _EXPIRED["has_old_fired_ticks"], (now - fired_ticks_kept(ticks_seconds),))
        or query.value(db, _EXPIRED["has_old_unfired_ticks"], (now - TICK_KEPT_SECONDS,))
        or query.value(db, _EXPIRED["has_removed_schedules"], (now - TICK_KEPT_SECONDS,))
    )
    return None if something else 0


def delete_expired(db: apsw.Connection, now: float, *, ticks_seconds: float, limit: int) -> int:
    """Delete expired rows, at most `limit` of each kind; return how many were deleted."""
    gone = _deleted(db, "expired_keys", now, limit)
    gone += _deleted(db, "expired_permits", now, limit)
    gone += _deleted(db, "expired_events", now, limit)
    gone += _delete_waits(db, limit)
    gone += _deleted(db, "expired_cached", now, limit)
    for rollup in ("old_rollups", "old_times", "old_tenants"):
        gone += _deleted(db, rollup, _minute(now - ROLLUP_KEPT_SECONDS), limit)
    gone += _delete_deaths(db, _minute(now) - DAYS_KEPT, limit)
    gone += _deleted(db, "old_audit", now - AUDIT_KEPT_SECONDS, limit)
    gone += _deleted(db, "old_fired_ticks", now - fired_ticks_kept(ticks_seconds), limit)
    gone += _deleted(db, "old_unfired_ticks", now - TICK_KEPT_SECONDS, limit)
    gone += _deleted(db, "removed_schedules", now - TICK_KEPT_SECONDS, limit)
    return gone + _delete_stale_batches(db, now - BATCH_KEPT_SECONDS, limit)


def delete_final_tasks(
    db: apsw.Connection, table: FinalTable, task_ids: Sequence[str], *, until_at: float
) -> list[str]:
    """Delete tasks with everything that belongs to them; return the ids of those that were deleted."""
    given = query.array([ids.to_blob(task_id) for task_id in task_ids])
    found = query.column(db, _FINAL[table], (given, until_at))
    if found:
        delete_tasks(db, found)
    return [ids.to_text(task) for task in found]


def _minute(moment: float) -> int:
    return int(moment // 60)


def _deleted(db: apsw.Connection, statement: str, before: float, limit: int) -> int:
    """Delete up to `limit` rows with one statement; return how many were deleted."""
    changes = db.total_changes()
    db.execute(_EXPIRED[statement], (before, limit))
    return db.total_changes() - changes


def _delete_waits(db: apsw.Connection, limit: int) -> int:
    """Delete what tasks that have ended still wait for; return how many rows."""
    changes = db.total_changes()
    for waits in _WAITS:
        db.execute(waits["clear_left_behind"], (limit,))
    return db.total_changes() - changes


def _delete_deaths(db: apsw.Connection, before: int, limit: int) -> int:
    """Delete old counts of deaths, and the descriptions that no count refers to any more."""
    changes = db.total_changes()
    db.execute(_DEATHS["old_days"], (before, limit))
    gone = db.total_changes() - changes
    if gone:
        db.execute(_DEATHS["unused_groups"])
    return gone


def _delete_stale_batches(db: apsw.Connection, before: float, limit: int) -> int:
    """Delete the tasks of batches that will not be committed, then the batches; return the sum."""
    gone = 0
    for (batch_id,) in query.rows(db, _EXPIRED["stale_batches"], (before,)):
        while gone < limit and (part := drop_part(db, batch_id, limit - gone)):
            gone += part
        if gone >= limit:
            break
        db.execute(_FORGET_BATCH, (batch_id,))
        gone += 1
    return gone
