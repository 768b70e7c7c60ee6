"""An application that misbehaves at start as the environment says; it records every start in a file."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tidegate import Context, Pool, Tidegate, Timings

ODD = os.environ.get("ODD", "")
OUT = Path(os.environ.get("OUT", "/nonexistent"))
LEASE = float(os.environ.get("LEASE", "0.6"))


def note(name: str, value: object) -> None:
    with (OUT / name).open("a") as file:
        file.write(json.dumps(value) + "\n")


def process() -> str:
    """Return which of the worker's processes imports this module."""
    words = [word for word in sys.orig_argv if word.startswith("tidegate.worker.")]
    return words[0].rpartition(".")[2] if words else "client"


def forever() -> None:
    threading.Event().wait()


note("imports", [process(), os.getpid(), time.time()])
if f"hang in {process()}" in ODD:
    time.sleep(3600)
if f"fail in {process()}" in ODD and (OUT / "fail now").exists():
    raise RuntimeError("a bad deploy")
if "thread that never ends" in ODD:
    threading.Thread(target=forever).start()
if "other database" in ODD:
    app = Tidegate(f"sqlite:///{OUT}/other.db")
else:
    app = Tidegate(
        pools=[
            Pool(
                concurrency=int(os.environ.get("CONCURRENCY", "4")),
                processes=int(os.environ.get("PROCESSES", "1")),
                poll_interval=0.05,
            )
        ],
        timings=Timings(
            lease=LEASE,
            beat=LEASE / 4,
            reap=LEASE / 3,
            promote=0.05,
            stop_grace=0.3,
            drain_grace=float(os.environ.get("GRACE", "3")),
            cancel_poll=0.05,
            stall_limit=float(os.environ.get("STALL", "20")),
        ),
    )


@app.on_start
async def start() -> None:
    note("starts", [os.getpid(), time.time()])
    if "exit in start hook" in ODD:
        os._exit(0)
    if "raise in start hook" in ODD:
        raise RuntimeError("no client today")
    if "hang in start hook" in ODD:
        await asyncio.Event().wait()


@app.task
async def swallow(ctx: Context) -> None:
    """Ignore every cancellation for ever."""
    note("swallows", [os.getpid(), ctx.run])
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@app.task(max_attempts=1, timeout=20)
def use_a_process_pool(numbers: list[int]) -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, numbers)


@app.task(max_attempts=1)
def end_a_child() -> int:
    with subprocess.Popen(["sleep", "60"]) as child:
        child.terminate()
        return child.wait(5)


@app.task(max_attempts=1)
def end_a_fork() -> int | None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    child.start()
    child.terminate()
    child.join(5)
    return child.exitcode


@app.task(max_attempts=1)
async def end_a_child_of_the_loop() -> int:
    child = await asyncio.create_subprocess_exec("sleep", "60")
    child.terminate()
    async with asyncio.timeout(5):
        return await child.wait()


@app.task
def quick() -> str:
    return "done"


@app.task
async def aquick() -> str:
    return "done"


@app.task
async def nap(ctx: Context, seconds: float) -> str:
    note("naps", [ctx.task_id, ctx.run, os.getpid(), "start"])
    await asyncio.sleep(seconds)
    note("naps", [ctx.task_id, ctx.run, os.getpid(), "end"])
    return "slept"


@app.task
def sync_nap(ctx: Context, seconds: float) -> str:
    note("naps", [ctx.task_id, ctx.run, os.getpid(), "start"])
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        ctx.raise_if_cancelled()
        time.sleep(0.01)
    note("naps", [ctx.task_id, ctx.run, os.getpid(), "end"])
    return "slept"


@app.task
async def exit_in_a_task_of_its_own() -> None:
    async def leave() -> None:
        sys.exit(0)

    await asyncio.create_task(leave())


@app.task
def stop_own_supervisor(ctx: Context) -> None:
    os.kill(os.getppid(), signal.SIGTERM)
