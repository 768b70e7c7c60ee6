"""Task functions with steps. Each call of a step's function is recorded in a file, as a provider would bill it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

from tidegate import Context, Fixed, Pool, StepDone, Tidegate, Timings

app = Tidegate(
    pools=[Pool(concurrency=4, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05, stop_grace=0.3, cancel_poll=0.05),
)


def write(what: str, **facts: object) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **facts}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def flag(name: str) -> Path:
    """Return a file by which a test tells the functions what to do."""
    return Path(os.environ["LEDGER"]).with_name(name)


async def draw(item: int) -> dict[str, int]:
    hangs = flag(f"hang-{item}").exists()
    write("call", item=item)
    await asyncio.sleep(0.02)
    if hangs:
        await asyncio.sleep(60)
    write("answer", item=item)
    return {"image": item * item}


def draw_plainly(item: int) -> dict[str, int]:
    hangs = flag(f"hang-{item}").exists()
    write("call", item=item)
    time.sleep(0.02)
    if hangs:
        time.sleep(60)
    write("answer", item=item)
    return {"image": item * item}


def draw_while_held(item: int) -> dict[str, int]:
    write("call", item=item)
    while flag("hold").exists():
        time.sleep(0.02)
    return {"image": item * item}


def fail_at(item: int, run: int) -> None:
    """Fail in the first run at one item."""
    if run == 1 and flag(f"fail-{item}").exists():
        raise RuntimeError(f"no item {item}")


@app.task(backoff=Fixed(0.05), max_attempts=3)
async def images(ctx: Context, count: int) -> list[int]:
    done = []
    for item in range(1, count + 1):
        fail_at(item, ctx.run)
        done.append((await ctx.step("image", draw, item))["image"])
    return done


@app.task(backoff=Fixed(0.05), max_attempts=3)
async def gathered(ctx: Context, count: int) -> list[int]:
    async def one(item: int) -> int:
        fail_at(item, ctx.run)
        return (await ctx.step("image", draw, item))["image"]

    # In another order in each run, as under load.
    items = list(range(1, count + 1))[:: 1 if ctx.run % 2 else -1]
    return sorted(await asyncio.gather(*[one(item) for item in items]))


@app.task(backoff=Fixed(0.05), max_attempts=3, runs_in="process")
def in_child(ctx: Context, count: int) -> list[int]:
    done = []
    for item in range(1, count + 1):
        fail_at(item, ctx.run)
        done.append(ctx.step_sync("image", draw_plainly, item)["image"])
    return done


@app.task(runs_in="process")
def left_in_child(ctx: Context, item: int) -> None:
    """Return while a thread is in the middle of a step."""
    threading.Thread(target=ctx.step_sync, args=("image", draw_while_held, item)).start()
    while not Path(os.environ["LEDGER"]).exists():
        time.sleep(0.02)


@app.task(backoff=Fixed(0.05), max_attempts=3, runs_in="thread")
def in_thread(ctx: Context, count: int) -> list[int]:
    done = []
    for item in range(1, count + 1):
        fail_at(item, ctx.run)
        done.append(ctx.step_sync("image", draw_plainly, item)["image"])
    return done


@app.task(backoff=Fixed(0.05), max_attempts=3)
async def careful(ctx: Context, item: int) -> int:
    return (await ctx.step("image", draw, item, in_doubt="ask"))["image"]


@app.task(backoff=Fixed(0.05), max_attempts=3)
async def reconciled(ctx: Context, item: int) -> int:
    def find(idempotency_key: str) -> StepDone | None:
        write("find", key=idempotency_key)
        return StepDone({"image": -1}) if flag("found").exists() else None

    write("key", key=ctx.idempotency_key)
    return (await ctx.step("image", draw, item, in_doubt=find))["image"]


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def limited(ctx: Context, item: int) -> int:
    return (await ctx.step("image", draw, item, timeout=0.3))["image"]
