"""Fold counters into the roll-up, and delete those of minutes and hours when they are old."""

from __future__ import annotations

from functools import partial

from tidegate.store.common.periods import (
    DAY_STEP,
    DEATH_STEPS,
    HOUR_STEP,
    TIMES_STEP,
    CompactionStep,
    compaction_limit,
)
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_DEATHS = load("deaths")
_SQL = load("compact_history")

_OLD = (
    (TIMES_STEP, (_SQL["old_time_minutes"],)),
    (HOUR_STEP, (_SQL["old_minutes"],)),
    (DAY_STEP, (_SQL["old_hours"], _SQL["old_time_hours"], _DEATHS["old_hours"])),
)
"""The statements that delete rows after each step: the fold has already added them to sums of longer
periods."""

_FOLD_ROWS = 10_000


async def fold(database: Database) -> None:
    """Fold the counts since the last fold into the roll-up."""
    while await database.autocommit(lambda db: db.value(_SQL["fold"], _FOLD_ROWS)) == _FOLD_ROWS:
        pass


async def compact(database: Database, limit: int) -> int:
    """Fold, then compact at most `limit` rows of each kind; return how many were summed or deleted."""
    await fold(database)
    done = 0
    for step in DEATH_STEPS:
        done += await database.transact(partial(_compact_deaths, step=step, limit=limit))
    done += await database.transact(partial(_compact_tenants, limit=limit))
    for step, statements in _OLD:
        for statement in statements:
            done += await database.transact(partial(_delete_old, step=step, statement=statement, limit=limit))
    return done


async def _compact_deaths(db: PostgresSession, *, step: CompactionStep, limit: int) -> int:
    before = compaction_limit(await db.now(), step)
    replaced: int = await db.value(_DEATHS["compact"], step.span, step.longer, before, limit)
    return replaced


async def _compact_tenants(db: PostgresSession, *, limit: int) -> int:
    replaced: int = await db.value(_SQL["tenant_hours"], compaction_limit(await db.now(), DAY_STEP), limit)
    return replaced


async def _delete_old(db: PostgresSession, *, step: CompactionStep, statement: str, limit: int) -> int:
    return await db.run(statement, compaction_limit(await db.now(), step), limit)
