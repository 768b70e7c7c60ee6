"""Counters since the store was made."""

from __future__ import annotations

from tidegate.store.common.session import Session
from tidegate.store.history_rows import EventKind, EventTotalRow, RunTimesRow, TotalCounts, TotalsRow


async def get_totals(db: Session) -> TotalCounts:
    """Return the counters of all tasks and runs since the store was made."""
    sql = db.sql("get_totals")
    rows = []
    for queue, function, upstream, *counts in await db.rows(sql["counts"]):
        tasks, seconds = map(int, counts[:6]), map(float, counts[6:8])
        usage, took = map(int, counts[8:11]), map(float, counts[11:])
        rows.append(TotalsRow(queue, function, upstream, *tasks, *seconds, *usage, *took))
    times: dict[tuple[str, str, str], dict[int, int]] = {}
    for queue, function, kind, bucket, runs in await db.rows(sql["times"]):
        times.setdefault((queue, function, kind), {})[bucket] = int(runs)
    events = [
        EventTotalRow(EventKind(kind), name, function, reason, int(events))
        for kind, name, function, reason, events in await db.rows(sql["events"])
    ]
    return TotalCounts(
        rows, [RunTimesRow(*channel, by_bucket) for channel, by_bucket in times.items()], events
    )
