"""Counters of tasks and runs by period, and by tenant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tidegate.store.common.periods import (
    DAY_STEP,
    HOUR_STEP,
    TIMES_STEP,
    Minutes,
    compaction_limit,
    minutes_of,
    rows_of,
)
from tidegate.store.common.session import Session
from tidegate.store.history_rows import Counts, HistoryRange, StatisticsRow, TenantStatisticsRow

_NAMES = ("queue", "function", "upstream")
_COUNTS = 12


async def get_statistics(
    db: Session, which: HistoryRange, *, step_minutes: int, apart: Collection[str] = _NAMES
) -> list[StatisticsRow]:
    """Return the counters, grouped by period and by the names in `apart`, oldest first."""
    sql, now = db.sql("get_statistics"), await db.now()
    kept = [name in apart for name in _NAMES]
    chosen = (step_minutes, which.queue, which.function, which.upstream, *kept)
    counts: dict[tuple[Any, ...], list[Any]] = {}
    counted = rows_of(which, step_minutes, now, oldest_minutes=compaction_limit(now, HOUR_STEP))
    for part in await _read(db, sql, ("sums", "minutes", "recent"), counted, chosen):
        sums = counts.setdefault(tuple(part[:4]), [0] * _COUNTS)
        for position, value in enumerate(part[4:]):
            sums[position] += value
    times: dict[tuple[Any, ...], dict[str, dict[int, int]]] = {}
    measured = rows_of(which, step_minutes, now, oldest_minutes=compaction_limit(now, TIMES_STEP))
    for *channel, kind, bucket, runs in await _read(
        db, sql, ("time_sums", "time_minutes", "recent_times"), measured, chosen
    ):
        by_bucket = times.setdefault(tuple(channel), {}).setdefault(kind, {})
        by_bucket[bucket] = by_bucket.get(bucket, 0) + int(runs)
    rows = []
    for key in sorted(counts.keys() | times.keys()):
        minute, queue, function, upstream = key
        mine = times.get(key, {})
        found = _counts(counts.get(key, [0] * _COUNTS))
        rows.append(
            StatisticsRow(
                minute * 60.0, queue, function, upstream, found, mine.get("run", {}), mine.get("wait", {})
            )
        )
    return rows


async def _read(
    db: Session,
    sql: Mapping[str, str],
    names: tuple[str, str, str],
    rows: Sequence[Minutes],
    chosen: tuple[Any, ...],
) -> list[Sequence[Any]]:
    """Return the rows of three statements: for sums, for minutes, and for counts that are not folded yet."""
    sums, minutes, recent = names
    whole = Minutes(0, min(each.first for each in rows), max(each.after for each in rows))
    return [
        *await db.run_each(sql[sums], [each for each in rows if each.span > 1], *chosen),
        *await db.run_each(sql[minutes], [each for each in rows if each.span == 1], *chosen),
        *await db.run_each(sql[recent], [whole], *chosen),
    ]


async def get_tenant_statistics(
    db: Session, which: HistoryRange, *, tenant: str | None = None, limit: int = 50
) -> list[TenantStatisticsRow]:
    """Return the counters of tenants over the whole range, those with the most tasks first."""
    first, end = _widened(which, await db.now())
    rows = await db.rows(db.sql("get_statistics")["tenants"], first - first % 60, end, tenant, limit)
    return [TenantStatisticsRow(name, _counts(counts)) for name, *counts in rows]


def _widened(which: HistoryRange, now: float) -> tuple[int, int]:
    """Return the first minute and the minute after the last, widened to full hours or days if old."""
    first, end = minutes_of(which)
    if first < compaction_limit(now, HOUR_STEP):
        first -= first % HOUR_STEP.longer
    if first < compaction_limit(now, DAY_STEP):
        first -= first % DAY_STEP.longer
    return first, end


def _counts(columns: Sequence[Any]) -> Counts:
    tasks, seconds, usage = columns[:7], columns[7:9], columns[9:]
    return Counts(*map(int, tasks), *map(float, seconds), *map(int, usage))
