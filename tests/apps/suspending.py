"""Task functions that suspend themselves. Each call of a step's function is recorded in a file."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from tidegate import ApprovalRequest, Context, Fixed, Pool, Tidegate, Timings
from tidegate.context import waits

waits.SUSPEND_SECONDS = 0.3  # in every process that imports this: tests must not wait for 5 s

app = Tidegate(
    pools=[Pool(concurrency=2, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05, stop_grace=0.3, cancel_poll=0.05),
)


def write(what: str, **facts: object) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **facts}) + "\n")
        file.flush()
        os.fsync(file.fileno())


async def call(item: str) -> str:
    write("call", item=item)
    return item.upper()


def call_plainly(item: str) -> str:
    write("call", item=item)
    return item.upper()


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def in_loop(ctx: Context, seconds: float) -> list[str]:
    write("start", run=ctx.run)
    before = await ctx.step("before", call, "before")
    await ctx.sleep(seconds)
    return [before, await ctx.step("after", call, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2)
def in_thread(ctx: Context, seconds: float) -> list[str]:
    write("start", run=ctx.run)
    before = ctx.step_sync("before", call_plainly, "before")
    ctx.sleep_sync(seconds)
    return [before, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
def in_child(ctx: Context, seconds: float) -> list[str]:
    write("start", run=ctx.run)
    before = ctx.step_sync("before", call_plainly, "before")
    ctx.sleep_sync(seconds)
    return [before, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
async def in_child_loop(ctx: Context, seconds: float) -> list[str]:
    write("start", run=ctx.run)
    before = await ctx.step("before", call, "before")
    await ctx.sleep(seconds)
    return [before, await ctx.step("after", call, "after")]


async def slow(seconds: float) -> str:
    write("call", item="slow")
    await asyncio.sleep(0 if Path(os.environ["LEDGER"]).with_name("fast").exists() else seconds)
    write("answer", item="slow")
    return "slow"


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def beside_a_step(ctx: Context, seconds: float, step_seconds: float) -> str:
    write("start", run=ctx.run)
    _, answer = await asyncio.gather(ctx.sleep(seconds), ctx.step("slow", slow, step_seconds))
    return answer


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def event_in_loop(ctx: Context, name: str) -> object:
    write("start", run=ctx.run)
    data = await ctx.wait_event(name)
    return [data, await ctx.step("after", call, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2)
def event_in_thread(ctx: Context, name: str) -> object:
    data = ctx.wait_event_sync(name)
    return [data, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
def event_in_child(ctx: Context, name: str) -> object:
    data = ctx.wait_event_sync(name)
    return [data, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
async def event_in_child_loop(ctx: Context, name: str) -> object:
    data = await ctx.wait_event(name)
    return [data, await ctx.step("after", call, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def event_beside_a_step(ctx: Context, name: str, step_seconds: float) -> object:
    write("start", run=ctx.run)
    return await asyncio.gather(ctx.wait_event(name), ctx.step("slow", slow, step_seconds))


def mail(request: ApprovalRequest) -> None:
    write("call", item="mail", link=request.link, question=request.question)


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def approval_in_loop(ctx: Context, data: object) -> object:
    write("start", run=ctx.run)
    approval = await ctx.approve("sure?", key="sure", data=data, to="ada", notify=mail)
    return [approval.approved, approval.by, approval.data, await ctx.step("after", call, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2)
def approval_in_thread(ctx: Context, data: object) -> object:
    approval = ctx.approve_sync("sure?", key="sure", data=data, to="ada", notify=mail)
    return [approval.approved, approval.by, approval.data, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
def approval_in_child(ctx: Context, data: object) -> object:
    approval = ctx.approve_sync("sure?", key="sure", data=data, to="ada", notify=mail)
    return [approval.approved, approval.by, approval.data, ctx.step_sync("after", call_plainly, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
async def approval_in_child_loop(ctx: Context, data: object) -> object:
    approval = await ctx.approve("sure?", key="sure", data=data, to="ada", notify=mail)
    return [approval.approved, approval.by, approval.data, await ctx.step("after", call, "after")]


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def approval_beside_a_step(ctx: Context, step_seconds: float) -> object:
    write("start", run=ctx.run)
    approval, answer = await asyncio.gather(
        ctx.approve("sure?", notify=mail), ctx.step("slow", slow, step_seconds)
    )
    return [approval.by, answer]


@app.task
async def child(ctx: Context, item: int) -> int:
    write("call", item=f"child {item}")
    return item * item


@app.task(backoff=Fixed(0.05), max_attempts=2)
async def gather_in_loop(ctx: Context, count: int) -> list[int]:
    handles = [await child.using(key=f"{ctx.task_id}:{item}").enqueue(item) for item in range(count)]
    return await ctx.gather(handles)


@app.task(backoff=Fixed(0.05), max_attempts=2)
def gather_in_thread(ctx: Context, count: int) -> list[int]:
    handles = [child.using(key=f"{ctx.task_id}:{item}").enqueue_sync(item) for item in range(count)]
    return ctx.gather_sync(handles)


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
def gather_in_child(ctx: Context, count: int) -> list[int]:
    handles = [child.using(key=f"{ctx.task_id}:{item}").enqueue_sync(item) for item in range(count)]
    return ctx.gather_sync(handles)


@app.task(backoff=Fixed(0.05), max_attempts=2, runs_in="process")
async def gather_in_child_loop(ctx: Context, count: int) -> list[int]:
    handles = [await child.using(key=f"{ctx.task_id}:{item}").enqueue(item) for item in range(count)]
    return await ctx.gather(handles)
