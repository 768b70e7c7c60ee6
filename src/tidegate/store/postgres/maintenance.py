"""Release committed batches, delete expired rows, and check that the tables are consistent.

Each step of a deletion is a short transaction that skips rows which another machine's maintenance has locked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tidegate.domain.retention import FinalTable
from tidegate.store.common import forget
from tidegate.store.common.periods import DAYS_KEPT
from tidegate.store.common.upkeep import (
    AUDIT_KEPT_SECONDS,
    BATCH_KEPT_SECONDS,
    INCONSISTENCIES,
    ROLLUP_KEPT_SECONDS,
    TICK_KEPT_SECONDS,
    fired_ticks_kept,
)
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.deletion import delete_tasks
from tidegate.store.postgres.history import fold
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_RELEASE = load("release_batches")["release_batches"]
_EXPIRED = load("delete_expired")
_FINAL = load("delete_final_tasks")
_DEATHS = load("deaths")
_WAITS = (load("task_waits"), load("cached"))
_DROP_BATCH = load("drop_batch")
_CHECK = load("check_integrity")


async def release_batches(db: PostgresSession, limit: int = 5_000) -> int:
    """Move tasks of committed batches to their queues; return how many were moved."""
    moved: int = await db.value(_RELEASE, db.at, limit)
    return moved


async def delete_expired(database: Database, *, ticks_seconds: float, limit: int) -> int:
    """Delete expired rows, one transaction per kind; return how many were deleted.

    Counts are folded into the roll-up first, or old ones would be missed.
    """
    await fold(database)

    async def expired(db: PostgresSession, name: str) -> int:
        return await db.run(_EXPIRED[name], db.at, limit)

    async def waits(db: PostgresSession) -> int:
        return sum([await db.run(each["clear_left_behind"], limit) for each in _WAITS])

    async def rollups(db: PostgresSession) -> int:
        return sum(
            [
                await db.run(_EXPIRED[rollup], db.at, ROLLUP_KEPT_SECONDS, limit)
                for rollup in ("old_rollups", "old_times", "old_tenants")
            ]
        )

    async def deaths(db: PostgresSession) -> int:
        gone = await db.run(_DEATHS["old_days"], int(await db.now() // 60) - DAYS_KEPT, limit)
        if gone:
            await db.run(_DEATHS["unused_groups"])
        return gone

    async def audit(db: PostgresSession) -> int:
        return await db.run(_EXPIRED["old_audit"], db.at, AUDIT_KEPT_SECONDS, limit)

    async def ticks(db: PostgresSession) -> int:
        return await _delete_ticks(db, fired_ticks_kept(ticks_seconds), limit)

    async def batches(db: PostgresSession) -> int:
        return await _delete_stale_batches(db, limit)

    kinds: list[Callable[[PostgresSession], Awaitable[int]]] = [
        partial(expired, name=f"expired_{name}") for name in ("keys", "permits", "events", "cached")
    ]
    gone = 0
    for kind in [*kinds, waits, rollups, deaths, audit, ticks, batches]:
        gone += await database.transact(kind)
    return gone


async def forget_tasks(db: PostgresSession, task_ids: Sequence[str]) -> list[str]:
    """Delete final tasks with all data about them in any table; return the ids that are gone now."""
    found = await forget.find_forgettable(db, task_ids)
    if found:
        await forget.remove_traces(db, found)
        await delete_tasks(db, found)
    return [db.text(task) for task in found]


async def check_integrity(db: PostgresSession) -> list[str]:
    """Check that the tables are consistent; return a description of each problem."""
    offenders = {name: await db.value(_CHECK[name]) for name in INCONSISTENCIES}
    return [f"{offenders[name]} {what}" for name, what in INCONSISTENCIES.items() if offenders[name]]


async def delete_final_tasks(
    db: PostgresSession, table: FinalTable, task_ids: Sequence[str], *, until_at: float
) -> list[str]:
    """Delete tasks with everything that belongs to them; return the ids of those that were deleted."""
    locked = await db.column(_FINAL[table], list(task_ids), until_at)
    if locked:
        await delete_tasks(db, locked)
    return [db.text(task) for task in locked]


async def _delete_ticks(db: PostgresSession, fired_seconds: float, limit: int) -> int:
    """Delete old ticks, and schedules that were removed long ago; return how many rows."""
    gone = await db.run(_EXPIRED["old_fired_ticks"], db.at, fired_seconds, limit)
    gone += await db.run(_EXPIRED["old_unfired_ticks"], db.at, TICK_KEPT_SECONDS, limit)
    return gone + await db.run(_EXPIRED["removed_schedules"], db.at, TICK_KEPT_SECONDS, limit)


async def _delete_stale_batches(db: PostgresSession, limit: int) -> int:
    """Delete the tasks of batches that will not be committed, then the batches; return the sum."""
    gone = 0
    for batch_id in await db.column(_EXPIRED["stale_batches"], db.at, BATCH_KEPT_SECONDS):
        while gone < limit and (part := await db.value(_DROP_BATCH["part"], batch_id, limit - gone)):
            gone += part
        if gone >= limit:
            break
        await db.run(_DROP_BATCH["forget_batch"], batch_id)
        gone += 1
    return gone
