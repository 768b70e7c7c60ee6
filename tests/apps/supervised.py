"""An application for supervisor tests: the environment sets its pools, limits and behaviour."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tidegate import Context, Fixed, Pool, Tidegate, Timings

OUT = Path(os.environ.get("OUT", "/nonexistent"))
CODE = OUT / "code"
"""The installed version, read at import like code."""
RELEASE = CODE.read_text() if CODE.exists() else "1"
if RELEASE == "broken":
    raise RuntimeError("this release cannot be imported")
if (OUT / "refuse").exists() and "TIDEGATE_MARK" in os.environ:
    raise RuntimeError("pool processes cannot import this, although the manifest could be read")


def size(name: str) -> int | None:
    return int(os.environ[name]) << 20 if name in os.environ else None


app = Tidegate(
    pools=[
        Pool(
            name,
            queues=(name,),
            concurrency=int(os.environ.get("CONCURRENCY", "4")),
            processes=int(os.environ.get("PROCESSES", "1")),
            poll_interval=0.05,
            memory_limit=size("HARD_MIB"),
            memory_soft_limit=size("SOFT_MIB"),
            overlap="OVERLAP" in os.environ,
        )
        for name in (["default", "second"] if RELEASE == "two pools" else ["default"])
    ],
    timings=Timings(
        lease=2.0,
        beat=0.4,
        reap=0.4,
        promote=0.05,
        stop_grace=0.4,
        drain_grace=float(os.environ.get("GRACE", "3")),
        cancel_poll=0.05,
    ),
)


def note(name: str, value: object) -> None:
    with (OUT / name).open("a") as file:
        file.write(json.dumps(value) + "\n")


def received(number: int, _: object) -> None:
    note("signals", [os.getpid(), number])


if os.environ.get("LISTEN"):
    signal.signal(signal.SIGUSR1, received)


@app.on_start
def start() -> None:
    note("starts", [os.getpid(), time.time(), RELEASE])
    if (OUT / "die at start").exists():
        os._exit(3)


@app.task(max_attempts=1, backoff=Fixed(0.05))
async def release(ctx: Context) -> list[object]:
    return [RELEASE, os.getpid()]


@app.task
async def nap(ctx: Context, seconds: float) -> int:
    note("naps", [ctx.task_id, os.getpid()])
    await asyncio.sleep(seconds)
    return os.getpid()


KEPT: list[bytes] = []


@app.task(max_attempts=3, backoff=Fixed(0.05))
async def leak(ctx: Context, mebibytes: int, hold_loop: bool = False) -> int:
    """Keep memory for ever and block the loop until the process is killed."""
    note("leaks", [ctx.run, os.getpid()])
    KEPT.append(b"x" * (mebibytes << 20))
    if hold_loop:
        time.sleep(30)
    return os.getpid()


@app.task(max_attempts=1)
def hold_in_child(mebibytes: int) -> int:
    kept = b"x" * (mebibytes << 20)
    time.sleep(1.0)
    return len(kept) >> 20


@app.task
def sleep_in_child(seconds: float) -> None:
    note("sleeps", os.getpid())
    time.sleep(seconds)


@app.task(max_attempts=1)
def leave_orphans(count: int) -> None:
    """Start programs whose parents end at once; the process that adopts them must reap them."""
    for _ in range(count):
        subprocess.run(["sh", "-c", "setsid sleep 0.2 &"], check=True)
