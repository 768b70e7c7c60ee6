"""Task functions whose steps share results. Each call of a step's function is recorded in a file."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import httpx2

from tidegate import Context, Fixed, Pool, Tidegate, Timings

app = Tidegate(
    pools=[Pool(concurrency=1, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05, stop_grace=0.3, cancel_poll=0.05),
)
provider = app.upstream("provider", max_in_flight=1)
RETRIES = {"backoff": Fixed(0.05), "max_attempts": 2}


def write(what: str, **facts: object) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **facts}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def is_released(item: str) -> bool:
    """Whether the test lets the work on an item end."""
    return Path(os.environ["LEDGER"]).with_name(f"go-{item}").exists()


async def draw(item: str) -> str:
    write("call", item=item)
    while not is_released(item):
        await asyncio.sleep(0.02)
    return item.upper()


def draw_plainly(item: str) -> str:
    write("call", item=item)
    while not is_released(item):
        time.sleep(0.02)
    return item.upper()


@app.task(**RETRIES)
async def in_loop(ctx: Context, item: str) -> str:
    write("start", run=ctx.run, task_id=ctx.task_id)
    return await ctx.step("draw", draw, item, cache="1h")


@app.task(**RETRIES, runs_in="thread")
def in_thread(ctx: Context, item: str) -> str:
    write("start", run=ctx.run, task_id=ctx.task_id)
    return ctx.step_sync("draw", draw_plainly, item, cache="1h")


@app.task(**RETRIES, runs_in="process")
def in_child(ctx: Context, item: str) -> str:
    write("start", run=ctx.run, task_id=ctx.task_id)
    return ctx.step_sync("draw", draw_plainly, item, cache="1h")


@app.task(**RETRIES, runs_in="process")
async def in_child_loop(ctx: Context, item: str) -> str:
    write("start", run=ctx.run, task_id=ctx.task_id)
    return await ctx.step("draw", draw, item, cache="1h")


@app.task(**RETRIES)
async def beside_a_step(ctx: Context, item: str, other: str) -> list[str]:
    write("start", run=ctx.run, task_id=ctx.task_id)
    return await asyncio.gather(
        ctx.step("draw", draw, item, cache="1h"), ctx.step("draw", draw, other), ctx.step("draw", draw, other)
    )


@app.task(**RETRIES)
async def twice(ctx: Context, item: str) -> list[str]:
    return await asyncio.gather(*(ctx.step("draw", draw, item, cache="1h") for _ in range(2)))


@app.task(**RETRIES)
async def inside(ctx: Context, outer: str, inner: str) -> str:
    """Do cached work inside other cached work."""

    async def work() -> str:
        write("begun", item=outer)
        while not is_released("inside"):
            await asyncio.sleep(0.02)
        return outer + await ctx.step("draw", draw, inner, cache="1h")

    return await ctx.step("outer", work, key=outer, cache="1h", cache_key=outer)


@app.task(**RETRIES)
async def quick(ctx: Context) -> str:
    return "quick"


async def ask(item: str) -> str:
    """Call the provider, which allows one call at a time."""
    write("call", item=item)
    async with httpx2.AsyncClient(transport=provider.transport()) as http:
        answer = await http.post(f"{os.environ['PROVIDER']}/ask", content=item.encode(), timeout=60)
    return f"{item} {answer.status_code}"


@app.task(**RETRIES)
async def asked(ctx: Context, item: str) -> str:
    return await ctx.step("ask", ask, item, cache="1h")


@app.task(**RETRIES)
async def asked_alone(ctx: Context, item: str) -> str:
    return await ctx.step("ask", ask, item)
