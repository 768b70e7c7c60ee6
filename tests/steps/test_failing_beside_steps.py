"""A function fails while others of its steps are in flight: their results are kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidegate import Context, Fixed, Tidegate
from tidegate.steps.waits import RunWaits
from tidegate.testing import Kit

app = Tidegate()
calls: Counter[int] = Counter()


@pytest.fixture
def kit() -> Iterator[Kit]:
    calls.clear()
    with Kit(app) as kit:
        yield kit


async def draw(item: int) -> int:
    calls[item] += 1
    if item == 0 and calls[0] == 1:
        raise ValueError("the provider has refused")
    await asyncio.sleep(60)
    return item


@app.task(backoff=Fixed(1))
async def gathered(ctx: Context) -> list[int]:
    return await asyncio.gather(*[ctx.step("image", draw, item) for item in (3, 2, 1, 0)])


@app.task(backoff=Fixed(1))
async def one_after_another(ctx: Context) -> None:
    three_at_once = asyncio.Semaphore(3)

    async def one(item: int) -> None:
        async with three_at_once:
            await ctx.step("image", draw, item)

    await asyncio.gather(*map(one, range(6)))


def draw_plainly(item: int) -> int:
    calls[item] += 1
    time.sleep(0.2)
    return item


@app.task(backoff=Fixed(1), runs_in="thread")
def in_threads(ctx: Context) -> list[int]:
    threads, has_begun = ThreadPoolExecutor(1), threading.Event()

    def other() -> int:
        has_begun.set()
        return draw_plainly(1)

    future = threads.submit(ctx.step_sync, "image", other, key="other")
    if ctx.run == 1:
        has_begun.wait(20)
        raise ValueError("not now")
    return [future.result()]


@app.task(backoff=Fixed(1))
async def nested(ctx: Context) -> None:
    async def outer() -> int:
        await asyncio.sleep(10)
        return await ctx.step("inner", draw, 1)

    async def fail() -> None:
        if ctx.run == 1:
            raise ValueError("not now")

    await asyncio.gather(ctx.step("outer", outer, key="outer"), fail())


def test_steps_beside_one_that_fails_are_done_once(kit: Kit) -> None:
    handle = gathered.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync(minutes=5)
    assert handle.result_sync(timeout=1) == [3, 2, 1, 0]
    assert calls == {0: 2, 1: 1, 2: 1, 3: 1}


def test_a_function_that_failed_begins_no_other_step(kit: Kit) -> None:
    one_after_another.enqueue_sync()
    assert kit.drain_sync().failed == 1
    assert max(calls) < 4, "only what began in the turn of the failure"


def test_a_step_in_flight_may_do_steps_of_its_own_to_its_end(kit: Kit) -> None:
    nested.enqueue_sync()
    kit.drain_sync()
    assert kit.advance_sync(minutes=5).succeeded == 1
    assert calls == {1: 1}


def test_a_plain_function_waits_for_the_steps_of_its_threads(kit: Kit) -> None:
    handle = in_threads.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync(minutes=5)
    assert handle.result_sync(timeout=1) == [1]
    assert calls == {1: 1}


def test_a_stream_that_the_function_has_left_does_not_count_as_in_flight() -> None:
    waits, now = RunWaits(), 100.0
    with waits.doing_step(), waits.giving_stream(lambda: now) as stream:
        assert waits.steps() == (1, 1)
        with stream.reading():
            now += 3_600.0
            assert waits.steps() == (1, 1), "it waits for a slow provider"
        now += 9.0
        assert waits.steps() == (1, 1)
        now += 2.0
        assert waits.steps() == (0, 1)
    assert waits.steps() == (0, 1)
