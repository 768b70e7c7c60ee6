"""Thousands of urgent tasks that wait for a limit or a gate neither slow nor stop the others."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support import FAST, all_final
from tidegate import Pool, Priority, State, Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio

POOL = Pool(concurrency=4, poll_interval=0.1)
CLAIM_SECONDS = {"sqlite": 0.1, "postgres": 0.05}
"""What a claim may take at the 95th percentile; only held where nothing else runs."""


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Tidegate]:
    made = Tidegate(store_url, pools=[POOL], timings=FAST)
    yield made
    await made.aclose()


def in_flight(app: Tidegate) -> Any:
    return {"upstream": app.upstream("one at a time", max_in_flight=1)}


def by_the_minute(app: Tidegate) -> Any:
    return {"rate_limit": "1/min"}


def parked(app: Tidegate) -> Any:
    return {"upstream": app.upstream("parked")}


@pytest.mark.parametrize("kept_back", [in_flight, by_the_minute, parked])
@pytest.mark.parametrize("heads", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_unblocked_tasks_run_at_once(
    app: Tidegate, request: pytest.FixtureRequest, heads: int, kept_back: Callable[[Tidegate], Any]
) -> None:
    is_measured = request.node.get_closest_marker("slow") is not None
    ended = asyncio.Event()

    @app.task(name="head", **kept_back(app))
    async def head() -> None:
        await ended.wait()

    @app.task(name="other")
    async def other() -> None:
        await asyncio.sleep(0.01)

    store = await core_of(app).opened_store()
    await store.declare_limits(core_of(app).declared())
    if kept_back is parked:
        await store.park_gate("parked", seconds=None, why="for the test")
    await app.enqueue_many(head.using(priority=Priority.INTERACTIVE).prepare() for _ in range(heads))
    took = timed_claims(app)
    async with app.worker(), app.worker():
        await asyncio.gather(*[(await other.enqueue()).result(20) for _ in range(8)])
        took.clear()  # those of a worker that has just connected
        began_at = time.monotonic()
        handles = [await other.using(priority=Priority.BULK).enqueue() for _ in range(50)]
        rows = await all_final(app, [handle.id for handle in handles])
        seconds = time.monotonic() - began_at
        used = await cpu_of_a_second() if is_measured else 0.0
        ended.set()
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    if is_measured:
        back_end = request.node.callspec.params["store_url"]
        assert seconds < 5.0
        assert statistics.quantiles(took, n=20)[18] < CLAIM_SECONDS[back_end]
        assert used < 2 * 0.1  # of a core: two workers that wait


async def cpu_of_a_second() -> float:
    """Return the CPU seconds that this process uses while it only waits for a second."""
    began_with = time.process_time()
    await asyncio.sleep(1.0)
    return time.process_time() - began_with


def timed_claims(app: Tidegate) -> list[float]:
    """Return the list to which every claim's seconds are added from now on."""
    took: list[float] = []
    claim = core_of(app).store.claim

    async def timed(request: Any) -> Any:
        began_at = time.monotonic()
        try:
            return await claim(request)
        finally:
            took.append(time.monotonic() - began_at)

    core_of(app).store.claim = timed  # type: ignore[method-assign]
    return took
