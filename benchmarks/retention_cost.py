"""What the retention of 1,000,000 finished tasks costs running work. `benchmarks.operate` runs it.

It is measured as the cost of a redrive is: maintenance in another process works in every second window.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from benchmarks.harness import log_progress
from benchmarks.redrive_cost import IDLE_SECONDS, lost_shares, obey, working
from tidegate.domain.retention import FinalTable, Retention
from tidegate.store.protocol import Store
from tidegate.worker.maintenance.loop import RETENTION_SHARE
from tidegate.worker.maintenance.retention import RetentionSweep

FINISHED = 1_000_000
KEPT_SECONDS = 7 * 86_400.0
_PAGE = 5_000
_SERIES = {
    "sqlite": "WITH RECURSIVE s (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < {count})",
    "postgres": "WITH s (i) AS (SELECT generate_series(0, {count} - 1))",
}
_ID = {
    "sqlite": "unhex(printf('%012x7000800000000000%04x', {at} * 1000 + i, 8))",
    "postgres": "(lpad(to_hex({at}::bigint * 1000 + i), 12, '0') || '70008000000000000008')::uuid",
}
_ROWS = (
    (
        "INSERT INTO {schema}task (id, queue, function, priority, enqueued_at)",
        "SELECT {id}, 'old', 'app:old', 1, {at} + i * 0.4 FROM s",
    ),
    ("INSERT INTO {schema}payload (task_id, codec_tag, args)", "SELECT {id}, 'json/1', {bytes} FROM s"),
    ("INSERT INTO {schema}result (task_id, codec_tag, data)", "SELECT {id}, 'json/1', {bytes} FROM s"),
    (
        "INSERT INTO {schema}archive (task_id, state, run, ready_at, started_at, finished_at)",
        "SELECT {id}, 'succeeded', 1, {at} + i * 0.4, {at} + i * 0.4, {at} + i * 0.4 + 1 FROM s",
    ),
)


def statements(kind: str, schema: str, count: int) -> list[str]:
    """Return the SQL that writes the finished tasks, each with arguments and a result."""
    at = int(time.time()) - 2_000_000
    values = {
        "id": _ID[kind].format(at=at),
        "at": at,
        "bytes": "x'7b7d'" if kind == "sqlite" else "'{}'::bytea",
    }
    series = _SERIES[kind].format(count=count)
    found = []
    for insert, select in _ROWS:
        into, text = insert.format(schema=schema), select.format(**values)
        found.append(f"{into} {series} {text}" if kind == "sqlite" else f"{series} {into} {text}")
    return found


def sweep(store: Store) -> Callable[[], Awaitable[float]]:
    """Return what maintenance does with finished tasks, with its pauses."""
    retention = RetentionSweep(store, Retention(finished=KEPT_SECONDS), clock=time.monotonic)

    async def run_round() -> float:
        began = time.monotonic()
        if await retention.run_once() is None:
            return IDLE_SECONDS
        return (time.monotonic() - began) * (1.0 / RETENTION_SHARE - 1.0)

    return run_round


async def measure_cost(store: Store, url: str, finished: int) -> float:
    """Return the share of the rate that live work loses to retention of `finished` tasks.

    Raises:
        RuntimeError: Nothing was left to remove before the end, so the figure says nothing.
    """
    async with working(store, url, "benchmarks.retention_cost") as (live, maintenance):
        low, middle, high = await lost_shares(live, maintenance)
    removed, after = finished, None
    while page := await store.list_final_tasks(
        FinalTable.ARCHIVE, older_than_seconds=KEPT_SECONDS, after=after, limit=_PAGE
    ):
        removed, after = removed - len(page), page[-1].position
    log_progress(f"    {middle:.1%} lost ({low:.1%} to {high:.1%}); {removed:,} tasks removed")
    if removed == finished:
        raise RuntimeError("all finished tasks were removed before the end: measure with more of them")
    return middle


if __name__ == "__main__":
    asyncio.run(obey(sys.argv[1], sweep))
