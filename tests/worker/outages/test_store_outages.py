"""The engine while its store is unreachable, loses answers, or returns: no task is lost or run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support import FAST, all_final, app_on, until
from tidegate import Pool, State, StoreUnavailableError, Tidegate
from tidegate.internals import core_of
from tidegate.store.connect import open_store

pytestmark = pytest.mark.anyio


class FaultyStore:
    """A real store with faults by method name: unreachable, or it commits without an answer."""

    def __init__(self, url: str) -> None:
        self.real = open_store(url)
        self.away = False
        self.unanswered: set[str] = set()
        """Methods whose next call commits and then fails."""
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.real, name)
        if not asyncio.iscoroutinefunction(method) or name in {"open", "close"}:
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if self.away:
                raise StoreUnavailableError("the store is away (by the test)")
            answer = await method(*args, **kwargs)
            if name in self.unanswered:
                self.unanswered.discard(name)
                raise StoreUnavailableError("committed, but the answer was lost (by the test)")
            return answer

        return call


@pytest.fixture
async def faulty(store_url: str) -> AsyncIterator[tuple[Tidegate, FaultyStore]]:
    store = FaultyStore(store_url)
    pools = [Pool(concurrency=20, poll_interval=0.05)]
    app = app_on(store, pools=pools, timings=FAST)
    yield app, store
    await app.aclose()


async def test_an_outage_longer_than_the_lease_re_runs_no_task(faulty: tuple[Tidegate, FaultyStore]) -> None:
    app, store = faulty
    ran: list[int] = []
    go = asyncio.Event()

    @app.task(name="t")
    async def body(number: int) -> int:
        ran.append(number)
        await go.wait()
        return number

    async with app.worker(), app.worker():
        handles = [await body.enqueue(number) for number in range(20)]

        async def all_running() -> bool:
            return len(ran) == 20

        await until(all_running)
        store.away = True
        await asyncio.sleep(2 * FAST.lease)
        go.set()
        await asyncio.sleep(0.1)
        store.away = False
        rows = await all_final(app, [handle.id for handle in handles])
    assert sorted(ran) == list(range(20))
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.run for row in rows.values()} == {1}


async def test_work_goes_on_within_seconds_after_the_store_is_back(
    faulty: tuple[Tidegate, FaultyStore],
) -> None:
    app, store = faulty

    @app.task(name="t")
    async def body() -> str:
        return "done"

    async with app.worker():
        store.away = True

        async def noticed() -> bool:
            return store.calls.count("extend_leases") >= 4

        await until(noticed)
        store.away = False
        handle = await body.enqueue()
        assert await handle.result(5) == "done"


@pytest.mark.parametrize("method", ["claim", "finish", "enqueue", "promote", "extend_leases", "add_worker"])
async def test_a_claim_whose_answer_was_lost_is_released(
    faulty: tuple[Tidegate, FaultyStore], method: str
) -> None:
    app, store = faulty
    ran: list[str] = []

    @app.task(name="t")
    async def body(number: int) -> None:
        ran.append(f"{number}")

    if method == "add_worker":
        store.unanswered = {"add_worker"}
        with pytest.raises(StoreUnavailableError):
            async with app.worker():
                pass
    async with app.worker():
        before_write = await body.using(delay=0.05).enqueue(0)
        store.unanswered = {method} if method != "add_worker" else set()
        task = body.prepare(1).new_task
        try:
            second = await core_of(app).enqueue_prepared(task)
        except StoreUnavailableError:
            second = await core_of(app).enqueue_prepared(task)
        assert second.created
        rows = await all_final(app, [before_write.id, second.task_id])
    assert sorted(ran) == ["0", "1"]
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}


async def test_a_finish_that_was_committed_without_an_answer_is_not_written_twice(
    faulty: tuple[Tidegate, FaultyStore],
) -> None:
    app, store = faulty

    @app.task(name="t")
    async def body() -> str:
        store.unanswered = {"finish"}
        return "once"

    async with app.worker():
        handle = await body.enqueue()
        assert await handle.result(5) == "once"
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert [run.outcome for run in runs] == ["succeeded"]
    assert store.calls.count("finish") >= 2


async def test_the_worker_stops_within_its_grace_time_while_the_store_is_unreachable(
    faulty: tuple[Tidegate, FaultyStore],
) -> None:
    app, store = faulty
    started = asyncio.Event()

    @app.task(name="t")
    async def body() -> None:
        started.set()
        await asyncio.sleep(30)

    worker = app.worker()
    async with asyncio.timeout(10):
        await worker.__aenter__()
        await body.enqueue()
        await started.wait()
        store.away = True
        await worker.stop(grace=0.1)
    store.away = False
