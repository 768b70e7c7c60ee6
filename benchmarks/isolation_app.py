"""The application of the isolation figures: functions in child processes, some of which crash them.

Configured by environment variables: `BENCH_CONCURRENCY` (tasks at once).
"""

from __future__ import annotations

import asyncio
import os
import signal

from tidegate import Fixed, Pool, Tidegate

app = Tidegate(pools=[Pool(concurrency=int(os.environ.get("BENCH_CONCURRENCY", "4")))])


@app.task
def child_noop(number: int) -> None:
    """Do nothing, in a child process."""


@app.task
async def loop_noop(number: int) -> None:
    """Do nothing, on the loop."""


@app.task
async def wait(seconds: float) -> None:
    """Wait as for a model's answer."""
    await asyncio.sleep(seconds)


@app.task(max_attempts=1, backoff=Fixed(0.01))
def kill_own_process(number: int) -> None:
    """Take the child process down."""
    os.kill(os.getpid(), signal.SIGKILL)
