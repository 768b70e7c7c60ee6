"""Task functions that emit chunks: from coroutines, threads and child processes."""

from __future__ import annotations

import asyncio
import os
import time

from tidegate import Context, Fixed, Pool, Tidegate, Timings

TIMINGS = Timings(lease=2.0, beat=0.4, reap=0.5, promote=0.05, stop_grace=0.3, cancel_poll=0.05)

app = Tidegate(pools=[Pool(concurrency=8, poll_interval=0.05)], timings=TIMINGS)


@app.task
async def tokens(ctx: Context, count: int, gap: float = 0.0) -> int:
    for number in range(1, count + 1):
        await ctx.emit({"token": number})
        await asyncio.sleep(gap)
    return count


@app.task
def lines(ctx: Context, count: int) -> int:
    for number in range(1, count + 1):
        ctx.emit_sync({"token": number})
    return count


@app.task(runs_in="process")
async def lines_of_a_coroutine(ctx: Context, count: int) -> int:
    for number in range(1, count + 1):
        await ctx.emit({"token": number})
    return count


@app.task(runs_in="process", backoff=Fixed(0.1))
def dies_once(ctx: Context, count: int) -> str:
    """Emit chunks and be killed in the first run; emit all of them again in the second."""
    for number in range(1, count + 1):
        ctx.emit_sync({"token": number})
    if ctx.run == 1:
        time.sleep(0.3)  # until the chunks are stored
        os.kill(os.getpid(), 9)
    return "done"
