"""The application under chaos. Every function records its starts and ends; every process records itself.

The functions do what real tasks do: wait, block their loop, run in child processes, start processes, keep
half-written files, fail, ask for another run.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
import uuid
from pathlib import Path
from typing import Literal

import httpx2

from chaos.paid_calls import HONOURING, PLAIN, ask, url_of
from chaos.plan import CRASH_WAIT_CAP_SECONDS, CRASH_WAIT_SECONDS, ChaosPlan
from chaos.process_logs import NOTES, PROCESSES, ProcessLog, ProcessStarted
from chaos.processes import HOST
from checker import FunctionRecorder
from harness.paid_calls import PAID, PaidNote, Promise
from harness.relations import RECEIVED, WaitNote, child_key
from harness.scripts import run_line
from harness.steps import CALLS, STEP, CallLog, CallNote
from tidegate import Context, Exponential, Handle, MapEnd, StoreError, Tidegate, Upstream
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
recorded_calls = app.upstream("recorded", record=True)
asking_calls = app.upstream("asking", record=True, in_doubt="ask")
honoured_calls = app.upstream("honoured", record=True)
step_calls = app.upstream("steps")


@app.task(backoff=soon)
async def steady(ctx: Context, number: int, script: list[str]) -> list[int]:
    """Do this run's line of the script (see `harness.scripts`)."""
    await run_line(ctx, script, _host)
    return [number, ctx.run]


@app.task(backoff=soon, on_crash="fail")
async def once(ctx: Context, number: int, script: list[str]) -> list[int]:
    """The same, but never a second time after a crash."""
    await run_line(ctx, script, _host)
    return [number, ctx.run]


@app.task(backoff=soon)
async def mapped(ctx: Context, end: MapEnd) -> list[int]:
    """Follow a map whose items are all final."""
    return [end.items, ctx.run]


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
    """Work in a child process that does not notice a request to stop."""
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


@app.task(backoff=soon)
async def pictures(ctx: Context, number: int, count: int) -> list[int]:
    """Do steps at the same time; repeat those in doubt."""
    await _draw_all(ctx, count, "repeat")
    return [number, ctx.run]


@app.task(backoff=soon)
async def asking(ctx: Context, number: int, count: int) -> list[int]:
    """The same, but repeat nothing without a person."""
    await _draw_all(ctx, count, "ask")
    return [number, ctx.run]


@app.task(backoff=soon)
def prints(ctx: Context, number: int, count: int) -> list[int]:
    """Do steps one after the other in a child process."""
    for item in range(count):

        def draw(item: int = item) -> str:
            token = uuid.uuid4().hex
            _note("sent", ctx, item, token)
            time.sleep(random.uniform(0.01, 0.2))
            _note("answered", ctx, item, token)
            return token

        _note("kept", ctx, item, ctx.step_sync(STEP, draw, key=str(item)))
    return [number, ctx.run]


@app.task(backoff=soon, upstream=recorded_calls)
async def recorded(ctx: Context, number: int, count: int) -> list[int]:
    """Make calls by a plain client, most of them streams. The code knows nothing of steps."""
    await _ask_all(ctx, count, recorded_calls, PLAIN, Promise.REPEATED)
    return [number, ctx.run]


@app.task(backoff=soon, upstream=asking_calls)
async def recorded_asking(ctx: Context, number: int, count: int) -> list[int]:
    """The same, but no call is repeated without a person."""
    await _ask_all(ctx, count, asking_calls, PLAIN, Promise.ASKED)
    return [number, ctx.run]


@app.task(backoff=soon, upstream=honoured_calls)
async def honoured(ctx: Context, number: int, count: int) -> list[int]:
    """The same, of a provider that bills each idempotency key once."""
    await _ask_all(ctx, count, honoured_calls, HONOURING, Promise.HONOURED)
    return [number, ctx.run]


@app.task(backoff=soon, upstream=step_calls)
async def honoured_steps(ctx: Context, number: int, count: int) -> list[int]:
    """Call that provider in steps, from a transport that records nothing."""
    await _ask_all(ctx, count, step_calls, HONOURING, Promise.HONOURED, in_steps=True)
    return [number, ctx.run]


async def _ask_all(
    ctx: Context, count: int, upstream: Upstream, provider: str, promise: Promise, *, in_steps: bool = False
) -> None:
    url = url_of(directory, provider)

    async def one(item: int) -> None:
        def note(event: Literal["sent", "kept"], request_id: str = "") -> None:
            _paid.write(PaidNote(event, ctx.task_id, ctx.run, item, count, promise, request_id))

        async def call() -> str:
            return await ask(client, url, ctx.task_id, item, is_stream=item % 3 > 0)

        note("sent")
        note("kept", await (ctx.step("pay", call, key=str(item)) if in_steps else call()))

    async with httpx2.AsyncClient(transport=upstream.transport()) as client:
        await asyncio.gather(*[one(item) for item in range(count)])


async def _draw_all(ctx: Context, count: int, in_doubt: Literal["repeat", "ask"]) -> None:
    asks = in_doubt == "ask"

    async def draw(item: int) -> str:
        token = uuid.uuid4().hex
        _note("sent", ctx, item, token, asks=asks)
        await asyncio.sleep(random.uniform(0.01, 0.3))
        _note("answered", ctx, item, token, asks=asks)
        return token

    async def one(item: int) -> None:
        _note("kept", ctx, item, await ctx.step(STEP, draw, item, key=str(item), in_doubt=in_doubt))

    await asyncio.gather(*[one(item) for item in range(count)])


def _note(
    event: Literal["sent", "answered", "kept"], ctx: Context, item: int, token: str, *, asks: bool = False
) -> None:
    _calls.write(CallNote(event, ctx.task_id, ctx.run, item, token, time.time(), asks))


class _Host:
    """What this application does for scripts."""

    def note_call(self, note: CallNote) -> None:
        _calls.write(note)

    def note_wait(self, note: WaitNote) -> None:
        _received.write(note)

    async def enqueue_children(self, context: Context, count: int) -> list[Handle[list[int]]]:
        return [await self._enqueue_child(context, number) for number in range(count)]

    async def _enqueue_child(self, context: Context, number: int) -> Handle[list[int]]:
        child = steady.using(key=child_key(context.task_id, number))
        while True:
            try:
                return await child.enqueue(number, ["ok 0.2"])
            except StoreError:
                await asyncio.sleep(0.2)


_host = _Host()
_received = CallLog(directory / RECEIVED)
_calls = CallLog(directory / CALLS)
_paid = CallLog(directory / PAID)
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
