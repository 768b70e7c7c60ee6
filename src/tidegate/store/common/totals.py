"""Counters since the store was made."""

from __future__ import annotations

from tidegate.store.common.session import Session
from tidegate.store.history_rows import RunTimesRow, TotalCounts, TotalsRow


async def get_totals(db: Session) -> TotalCounts:
    """Return the counters of all tasks and runs since the store was made."""
    sql = db.sql("get_totals")
    rows = [
        TotalsRow(
            queue, function, upstream, *map(int, counts[:6]), *map(float, counts[6:8]), *map(int, counts[8:])
        )
        for queue, function, upstream, *counts in await db.rows(sql["counts"])
    ]
    times: dict[tuple[str, str, str], dict[int, int]] = {}
    for queue, function, kind, bucket, runs in await db.rows(sql["times"]):
        times.setdefault((queue, function, kind), {})[bucket] = int(runs)
    return TotalCounts(rows, [RunTimesRow(*channel, by_bucket) for channel, by_bucket in times.items()])
