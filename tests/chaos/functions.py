"""The application under chaos. Every function records its starts and ends; every process records itself.

The functions do what real tasks do: wait, block their loop, run in child processes, start processes, keep
half-written files, fail, ask for another run.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

from chaos.plan import CRASH_WAIT_CAP_SECONDS, CRASH_WAIT_SECONDS, ChaosPlan
from chaos.process_logs import NOTES, PROCESSES, ProcessLog, ProcessStarted
from chaos.processes import HOST
from checker import FunctionRecorder
from tidegate import Context, Exponential, Permanent, Tidegate, Transient
from tidegate.internals import core_of
from tidegate.worker.children.process_tree import MARK

DIRECTORY = "TIDEGATE_CHAOS_DIRECTORY"
PLAN = "TIDEGATE_CHAOS_PLAN"
"""Environment variables: the directory of the files, the seed, the number of workers and the lease."""

directory = Path(os.environ[DIRECTORY])
_seed, _workers, _lease = os.environ[PLAN].split()
plan = ChaosPlan(int(_seed), workers=int(_workers), lease=float(_lease))
soon = Exponential(CRASH_WAIT_SECONDS, CRASH_WAIT_CAP_SECONDS)
app = Tidegate(pools=[plan.pool], timings=plan.timings)


class UnclassifiedError(Exception):
    """An error that no rule classifies."""


@app.task(backoff=soon)
async def nap(ctx: Context, number: int, seconds: float) -> list[int]:
    await asyncio.sleep(seconds)
    return [number, ctx.run]


@app.task(backoff=soon)
async def hog(ctx: Context, number: int, seconds: float) -> list[int]:
    """Block the loop."""
    time.sleep(seconds)
    return [number, ctx.run]


@app.task(backoff=soon)
def work(ctx: Context, number: int, seconds: float) -> list[int]:
    """Work in a child process, report progress, and stop when asked to."""
    ends_at = time.monotonic() + seconds
    while (left := ends_at - time.monotonic()) > 0:
        ctx.raise_if_cancelled()
        ctx.progress(seconds - left, seconds)
        time.sleep(min(left, 0.05))
    return [number, ctx.run]


@app.task(backoff=soon)
def deaf(ctx: Context, number: int, seconds: float) -> list[int]:
    """Work in a child process that hears no stop."""
    time.sleep(seconds)
    return [number, ctx.run]


@app.task(backoff=soon)
def draft(ctx: Context, number: int, seconds: float) -> list[int]:
    """Keep a half-written file and a process in a session of its own until the work is done."""
    (ctx.scratch() / "half").write_text("half a file")
    helper = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    try:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            ctx.raise_if_cancelled()
            time.sleep(0.02)
    finally:
        helper.kill()
        helper.wait()
    return [number, ctx.run]


@app.task(backoff=soon, runs_in="thread")
def threaded(ctx: Context, number: int, seconds: float) -> list[int]:
    time.sleep(seconds)
    return [number, ctx.run]


@app.task(backoff=soon, on_crash="fail")
async def once(ctx: Context, number: int, seconds: float) -> list[int]:
    await asyncio.sleep(seconds)
    return [number, ctx.run]


@app.task(backoff=soon)
async def flaky(ctx: Context, number: int, failures: int) -> list[int]:
    """Fail in the first attempts."""
    await asyncio.sleep(0.05)
    if ctx.attempt <= failures:
        raise Transient("not yet")
    return [number, ctx.run]


@app.task(backoff=soon)
async def again(ctx: Context, number: int, times: int, charge: bool) -> list[int]:
    """Ask to be run again in the first runs."""
    await asyncio.sleep(0.05)
    if ctx.run <= times:
        ctx.retry(after=0.1, reason="more to come", charge=charge)
    return [number, ctx.run]


@app.task(backoff=soon, max_attempts=2)
async def hopeless(ctx: Context, number: int) -> None:
    await asyncio.sleep(0.05)
    raise UnclassifiedError(f"{number} is odd")


@app.task(backoff=soon)
def forbidden(ctx: Context, number: int) -> None:
    raise Permanent(f"{number} is not allowed")


@app.task(backoff=soon, timeout=plan.lease / 2, max_attempts=2)
async def overrun(ctx: Context, number: int) -> None:
    await asyncio.sleep(3600)


_recorder = FunctionRecorder(directory / NOTES)
for _function in core_of(app).functions.values():
    _recorder.record_runs(_function)


@app.on_start
def register_pool_process() -> None:
    _register("pool")


@app.on_child_start
def register_child() -> None:
    _register("slot")


def _register(kind: str) -> None:
    worker_id = os.environ[MARK].partition("/")[0]
    entry = ProcessStarted(
        kind, os.getpid(), os.getppid(), worker_id, os.environ[HOST].rpartition("/")[2], time.time()
    )
    ProcessLog(directory / PROCESSES).write(entry)
