"""Housekeeping: what is staged reaches its place, what has served its time goes.

Every piece is a short transaction that steps over rows another steward holds.
"""

from __future__ import annotations

from tidegate.store.postgres.database import Database
from tidegate.store.postgres.deletion import delete_tasks
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.retention import AUDIT_KEPT_SECONDS, ROLLUP_KEPT_SECONDS, STAGE_KEPT_SECONDS

_UNSTAGE = load("unstage")["unstage"]
_SWEEP = load("sweep")
_DROP = load("drop_stage")
_FOLD = load("checkpoint")["fold"]

_FOLD_ROWS = 10_000


async def unstage(db: PostgresSession, limit: int) -> int:
    """Move tasks of committed stages to where they belong; return how many were moved."""
    moved: int = await db.value(_UNSTAGE, db.at, limit)
    return moved


async def sweep(database: Database, *, finished_seconds: float, dead_seconds: float, limit: int) -> int:
    """Delete what has served its time, a transaction a kind; return how many rows went.

    What was counted is folded first, or counters too old would be overlooked.
    """
    await fold(database)

    async def keys(db: PostgresSession) -> int:
        return await db.run(_SWEEP["expired_keys"], db.at, limit)

    async def permits(db: PostgresSession) -> int:
        return await db.run(_SWEEP["expired_permits"], db.at, limit)

    async def rollups(db: PostgresSession) -> int:
        return await db.run(_SWEEP["old_rollups"], db.at, ROLLUP_KEPT_SECONDS, limit)

    async def audit(db: PostgresSession) -> int:
        return await db.run(_SWEEP["old_audit"], db.at, AUDIT_KEPT_SECONDS, limit)

    async def finished(db: PostgresSession) -> int:
        return await _sweep_tasks(db, "finished", finished_seconds, limit)

    async def dead(db: PostgresSession) -> int:
        return await _sweep_tasks(db, "dead", dead_seconds, limit)

    async def stages(db: PostgresSession) -> int:
        return await _sweep_stages(db, limit)

    gone = 0
    for kind in (keys, permits, rollups, audit, finished, dead, stages):
        gone += await database.transact(kind)
    return gone


async def fold(database: Database) -> None:
    """Fold what was counted since the last time into the roll-up."""
    while await database.once(lambda db: db.value(_FOLD, _FOLD_ROWS)) == _FOLD_ROWS:
        pass


async def _sweep_tasks(db: PostgresSession, statement: str, seconds: float, limit: int) -> int:
    old = await db.column(_SWEEP[statement], db.at, seconds, limit)
    if old:
        await delete_tasks(db, old)
    return len(old)


async def _sweep_stages(db: PostgresSession, limit: int) -> int:
    """Delete the tasks of stages nobody will commit, then the stages; count both."""
    gone = 0
    for stage_id in await db.column(_SWEEP["stale_stages"], db.at, STAGE_KEPT_SECONDS):
        while gone < limit and (part := await db.value(_DROP["part"], stage_id, limit - gone)):
            gone += part
        if gone >= limit:
            break
        await db.run(_DROP["forget_stage"], stage_id)
        gone += 1
    return gone
