"""Replace old counters by the sums of longer periods."""

from __future__ import annotations

from functools import partial

from tidegate.store.common.deaths import STEPS, CompactionStep, compaction_limit
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_DEATHS = load("deaths")


async def compact(database: Database, limit: int) -> int:
    """Sum rows, at most `limit` for each step; return how many were replaced."""
    replaced = 0
    for step in STEPS:
        replaced += await database.transact(partial(_compact_deaths, step=step, limit=limit))
    return replaced


async def _compact_deaths(db: PostgresSession, *, step: CompactionStep, limit: int) -> int:
    before = compaction_limit(await db.now(), step)
    replaced: int = await db.value(_DEATHS["compact"], step.span, step.longer, before, limit)
    return replaced
