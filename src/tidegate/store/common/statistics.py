"""Counters of tasks and runs by period, and by tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.common.deaths import DAY_STEP, HOUR_STEP, TIMES_STEP, compaction_limit, minutes_of
from tidegate.store.common.session import Session
from tidegate.store.history_rows import Counts, HistoryRange, StatisticsRow, TenantStatisticsRow

_TimesByChannel = dict[tuple[Any, ...], dict[str, dict[int, int]]]


async def get_statistics(db: Session, which: HistoryRange, *, step_minutes: int) -> list[StatisticsRow]:
    """Return the counters by period, queue, function and upstream, oldest first."""
    sql = db.sql("get_statistics")
    now = await db.now()
    first, end = _minutes(which, now)
    chosen = (end, step_minutes, which.queue, which.function, which.upstream)
    times: _TimesByChannel = {}
    first_time = first - first % 60 if first < compaction_limit(now, TIMES_STEP) else first
    for *channel, kind, bucket, runs in await db.rows(sql["times"], first_time, *chosen):
        times.setdefault(tuple(channel), {}).setdefault(kind, {})[bucket] = int(runs)
    rows = []
    for minute, queue, function, upstream, *counts in await db.rows(sql["counts"], first, *chosen):
        mine = times.get((minute, queue, function, upstream), {})
        rows.append(
            StatisticsRow(
                minute * 60.0,
                queue,
                function,
                upstream,
                _counts(counts),
                mine.get("run", {}),
                mine.get("wait", {}),
            )
        )
    return rows


async def get_tenant_statistics(
    db: Session, which: HistoryRange, *, tenant: str | None = None, limit: int = 50
) -> list[TenantStatisticsRow]:
    """Return the counters of tenants over the whole range, those with the most tasks first."""
    first, end = _minutes(which, await db.now())
    rows = await db.rows(db.sql("get_statistics")["tenants"], first - first % 60, end, tenant, limit)
    return [TenantStatisticsRow(name, _counts(counts)) for name, *counts in rows]


def _minutes(which: HistoryRange, now: float) -> tuple[int, int]:
    """Return the first minute and the one after the last. Old counters are those of an hour or a day."""
    first, end = minutes_of(which)
    if first < compaction_limit(now, HOUR_STEP):
        first -= first % HOUR_STEP.longer
    if first < compaction_limit(now, DAY_STEP):
        first -= first % DAY_STEP.longer
    return first, end


def _counts(columns: Sequence[Any]) -> Counts:
    tasks, seconds, usage = columns[:7], columns[7:9], columns[9:]
    return Counts(*map(int, tasks), *map(float, seconds), *map(int, usage))
