"""Task functions for real worker processes. Each records its starts and ends in a file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time

from tidegate import Context, Fixed, Permanent, Pool, Tidegate, Timings

LEASE = float(os.environ.get("LEASE", "0.6"))
app = Tidegate(
    pools=[
        Pool(
            concurrency=int(os.environ.get("CONCURRENCY", "10")),
            processes=int(os.environ.get("PROCESSES", "1")),
            poll_interval=0.05,
            event_loop=os.environ.get("EVENT_LOOP", "auto"),
        )
    ],
    timings=Timings(
        lease=LEASE,
        beat=LEASE / 4,
        reap=LEASE / 3,
        promote=0.05,
        stop_grace=0.3,
        drain_grace=float(os.environ.get("GRACE", "5")),
        cancel_poll=0.05,
        stall_limit=float(os.environ.get("STALL", "20")),
    ),
)


def write(what: str, ctx: Context) -> None:
    entry = {"what": what, "task_id": ctx.task_id, "run": ctx.run, "pid": os.getpid(), "at": time.time()}
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


@app.task
async def nap(ctx: Context, seconds: float) -> str:
    write("start", ctx)
    await asyncio.sleep(seconds)
    write("end", ctx)
    return "slept"


@app.task
async def block_loop(ctx: Context, seconds: float) -> str:
    write("start", ctx)
    time.sleep(seconds)
    write("end", ctx)
    return "blocked"


@app.task
async def spin(ctx: Context, seconds: float) -> str:
    write("start", ctx)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass
    write("end", ctx)
    return "spun"


@app.task
def sync_nap(ctx: Context, seconds: float) -> str:
    write("start", ctx)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        ctx.raise_if_cancelled()
        time.sleep(0.02)
    write("end", ctx)
    return "slept"


@app.task(backoff=Fixed(0.05))
async def kill_own_process(ctx: Context, times: int) -> str:
    write("start", ctx)
    if ctx.run <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task(on_crash="fail")
async def kill_once_and_for_all(ctx: Context) -> None:
    write("start", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def leave_scratch(ctx: Context, die: bool) -> str:
    write("start", ctx)
    path = ctx.scratch() / "half"
    path.write_text("half a file")
    if die and ctx.run == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(path)


@app.task(timeout=0.2, max_attempts=1)
async def swallow() -> None:
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


@app.task
async def fail(ctx: Context, message: str) -> None:
    write("start", ctx)
    raise Permanent(message)


@app.task
async def name_event_loop() -> str:
    """Return the package of the loop that it runs on: `asyncio` or `uvloop`."""
    loop = asyncio.get_running_loop()
    return next(each for base in type(loop).__mro__ if (each := base.__module__.split(".")[0]) != "tidegate")


@app.task
async def add(a: int, b: int) -> int:
    return a + b


if os.environ.get("BREAK_IMPORT"):
    sys.exit("this module refuses to be imported")
