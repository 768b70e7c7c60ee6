"""The application of the figure `limited`: the same tasks without an upstream, and with one.

Configured by environment variables, since the worker imports it by name: `BENCH_UPSTREAM` (a key of
`LIMITS`),
`BENCH_CONCURRENCY` (tasks at once), `BENCH_RATE` (calls a second of the paced upstream).
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tidegate import Pool, Tidegate

LIMITS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "plain": {},
    "limits": {"requests_per_second": 100_000, "requests_per_day": 10_000_000, "max_in_flight": 100_000},
    "paced": {"requests_per_second": int(os.environ.get("BENCH_RATE", "100"))},
}
"""The limits of the upstream of all tasks, by the value of `BENCH_UPSTREAM`; None for no upstream."""

app = Tidegate(pools=[Pool(concurrency=int(os.environ.get("BENCH_CONCURRENCY", "100")), queues=["*"])])
_limits = LIMITS[os.environ.get("BENCH_UPSTREAM", "none")]
service = None if _limits is None else app.upstream("service", **_limits)


@app.task(upstream=service)
async def noop(number: int) -> None:
    """Do nothing."""


@app.task(upstream=service)
async def call_many(calls: int, pause: float) -> None:
    """Make calls to the upstream, one after the other. The claim has charged the first one."""
    assert service is not None
    for _ in range(calls):
        async with service.call():
            await asyncio.sleep(pause)
