"""Task functions for workers that are killed at random; each run writes records to the disk."""

from __future__ import annotations

import asyncio
import os
import time

from checker import FunctionRecorder
from tidegate import Context, Fixed, Pool, Tidegate, Timings, Transient
from tidegate.internals import core_of

LEASE = float(os.environ.get("LEASE", "1.0"))
app = Tidegate(
    pools=[Pool(concurrency=6, poll_interval=0.05)],
    timings=Timings(
        lease=LEASE,
        beat=LEASE / 4,
        reap=LEASE / 4,
        promote=0.05,
        stop_grace=0.4,
        drain_grace=1.0,
        cancel_poll=0.05,
        stall_limit=30.0,
    ),
)


@app.task(max_attempts=10, backoff=Fixed(0.1))
async def nap(ctx: Context, number: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return number


@app.task(max_attempts=10, backoff=Fixed(0.1))
def sync_nap(ctx: Context, number: int, seconds: float) -> int:
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        ctx.raise_if_cancelled()
        time.sleep(0.005)
    return number


@app.task(max_attempts=10, backoff=Fixed(0.1))
async def flaky(ctx: Context, number: int) -> int:
    ctx.progress(ctx.run)
    if ctx.attempt <= number % 3:
        raise Transient("not yet")
    return number


if "WITNESS" in os.environ:
    recorder = FunctionRecorder(os.environ["WITNESS"])
    for function in core_of(app).functions.values():
        recorder.record_runs(function)
