"""Fold counters into the roll-up, and replace old ones by the sums of longer periods."""

from __future__ import annotations

from functools import partial

from tidegate.store.common.deaths import (
    DAY_STEP,
    HOUR_STEP,
    STEPS,
    TIMES_STEP,
    CompactionStep,
    compaction_limit,
)
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_DEATHS = load("deaths")
_SQL = load("compact_history")

_ROLLUP = (
    (TIMES_STEP, ("time_minutes",)),
    (HOUR_STEP, ("minutes",)),
    (DAY_STEP, ("hours", "time_hours", "tenant_hours")),
)
"""The statements of each step. Tenants are counted by the hour from the start."""

_FOLD_ROWS = 10_000


async def fold(database: Database) -> None:
    """Fold the counts since the last time into the roll-up."""
    while await database.autocommit(lambda db: db.value(_SQL["fold"], _FOLD_ROWS)) == _FOLD_ROWS:
        pass


async def compact(database: Database, limit: int) -> int:
    """Fold, then sum rows, at most `limit` for each step; return how many were replaced by sums."""
    await fold(database)
    replaced = 0
    for step in STEPS:
        replaced += await database.transact(partial(_compact_deaths, step=step, limit=limit))
    for step, statements in _ROLLUP:
        for statement in statements:
            replaced += await database.transact(
                partial(_compact_rollup, step=step, statement=statement, limit=limit)
            )
    return replaced


async def _compact_deaths(db: PostgresSession, *, step: CompactionStep, limit: int) -> int:
    before = compaction_limit(await db.now(), step)
    replaced: int = await db.value(_DEATHS["compact"], step.span, step.longer, before, limit)
    return replaced


async def _compact_rollup(db: PostgresSession, *, step: CompactionStep, statement: str, limit: int) -> int:
    replaced: int = await db.value(_SQL[statement], compaction_limit(await db.now(), step), limit)
    return replaced
