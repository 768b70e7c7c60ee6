"""Callers' open transactions and large results must not block the worker."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
from store_build import Build, succeeded

from postgres_support import SCHEMA
from support import FAST
from tidegate import Pool, Tidegate
from tidegate.domain.outcome import FinishStatus
from tidegate.store.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio


async def test_a_callers_open_transaction_does_not_keep_runs_from_ending(worker_url: str) -> None:
    app = Tidegate(worker_url, timings=FAST, pools=[Pool(concurrency=4, poll_interval=0.05)])
    reported = asyncio.Event()

    @app.task(name="unique")
    async def unique() -> str:
        await reported.wait()
        return "unique"

    @app.task(name="other")
    async def other() -> str:
        return "other"

    connection: Any = await asyncpg.connect(worker_url)
    try:
        async with app.worker():
            first = await unique.using(unique="until_final").enqueue()
            async with connection.transaction():  # idle in it, as during a slow call to another service
                again = await unique.using(conn=connection, unique="until_final").enqueue()
                assert again.id == first.id
                reported.set()
                assert await first.result(timeout=10) == "unique"
                assert await (await other.enqueue()).result(timeout=10) == "other"
    finally:
        await connection.close()
        await app.aclose()


async def test_enqueues_that_wait_for_a_callers_key_leave_connections_for_other_work(worker_url: str) -> None:
    app = Tidegate(worker_url)

    @app.task(name="t")
    async def body(number: int) -> None: ...

    connection: Any = await asyncpg.connect(worker_url)
    try:
        async with connection.transaction():
            held = await body.using(conn=connection, key="K").enqueue(1)
            waiting = [asyncio.create_task(body.using(key="K").enqueue(1)) for _ in range(10)]
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await body.enqueue(2)
            assert not any(task.done() for task in waiting)
        assert {handle.id for handle in await asyncio.gather(*waiting)} == {held.id}
    finally:
        await connection.close()
        await app.aclose()


async def test_results_too_large_for_one_write_are_split_and_statuses_keep_their_order(
    store: PostgresStore, build: Build, worker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.store.postgres.finish.MAX_RESULT_BYTES", 10)
    results = [b'"1234"', b'"1"', b'"larger than a write"', b'"1"', b'"12345"']
    tasks = await build.running(len(results))
    outcomes = [succeeded(task.fence, result) for task, result in zip(tasks, results, strict=True)]
    answers = await store.finish([*outcomes, outcomes[0]])
    assert answers == [FinishStatus.DONE] * len(results) + [FinishStatus.ALREADY]
    for task, result in zip(tasks, results, strict=True):
        stored = await store.get_result(task.fence.task_id)
        assert stored is not None
        assert stored.data == result
    with psycopg.connect(worker_url) as connection:
        writes = connection.execute(f"SELECT count(DISTINCT xmin::text) FROM {SCHEMA}.archive").fetchone()
    assert writes == (3,)
