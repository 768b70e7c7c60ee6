"""PostgreSQL restarts, cut and silent connections: no task is lost, nothing hangs for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pgserver import NotHereError, Proxy, Server, postgres_server, proxied
from postgres_support import SCHEMA, emptied
from support import FAST, all_final, app_on, until
from tidegate import Handle, Pool, State, StoreUnavailableError, Tidegate
from tidegate.internals import core_of
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import NewTask

CALL_SECONDS = 1.0
"""The longest time for one call in these tests; the default is 30 s."""
BOUND = FAST.lease + FAST.reap + CALL_SECONDS
"""Lease, reap interval, and a call that hangs on a dead connection."""
SLACK = 10.0
"""A margin for a machine that is busy with other tests."""

WORKER = role(SCHEMA, "worker")


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server that may be killed."""
    try:
        with postgres_server() as started:
            yield started
    except NotHereError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def application(url: str) -> AsyncIterator[Tidegate]:
    store = PostgresStore(url, busy_seconds=CALL_SECONDS)
    app = app_on(store, pools=[Pool(concurrency=20, poll_interval=0.05)], timings=FAST)
    try:
        yield app
    finally:
        await app.aclose()


async def test_a_restart_of_the_server_under_load_loses_nothing(fragile: Server) -> None:
    emptied(fragile)
    async with application(fragile.url(user=WORKER)) as app:

        @app.task(name="t", max_attempts=10)
        async def body(number: int) -> int:
            await asyncio.sleep(0.01)
            return number

        async with app.worker(), app.worker():
            handles = [await body.enqueue(number) for number in range(300)]
            for _ in range(3):
                await asyncio.to_thread(restart, fragile)
                await asyncio.sleep(0.1)
            rows = await all_final(app, [handle.id for handle in handles], within=30)
        store = await core_of(app).opened_store()
        assert await store.check_integrity() == []
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}


async def test_tasks_that_run_through_a_restart_run_once(fragile: Server) -> None:
    emptied(fragile)
    async with application(fragile.url(user=WORKER)) as app:
        started: list[int] = []
        go = asyncio.Event()

        @app.task(name="t")
        async def body(number: int) -> None:
            started.append(number)
            await go.wait()

        async with app.worker():
            handles = [await body.enqueue(number) for number in range(10)]
            await until(lambda: as_async(len(started) == 10))
            await asyncio.to_thread(restart, fragile)
            go.set()
            rows = await all_final(app, [handle.id for handle in handles])
    assert sorted(started) == list(range(10))
    assert {row.run for row in rows.values()} == {1}


async def test_closed_connections_are_reopened(fragile: Server) -> None:
    emptied(fragile)
    async with proxied(fragile) as proxy, application(proxy.url(user=WORKER)) as app:

        @app.task(name="t", max_attempts=10)
        async def body(number: int) -> int:
            await asyncio.sleep(0.01)
            return number

        cut = 0
        async with app.worker():
            handles = [await body.enqueue(number) for number in range(100)]
            for _ in range(10):
                cut += proxy.cut()
                await asyncio.sleep(0.05)
            rows = await all_final(app, [handle.id for handle in handles], within=30)
    assert cut >= 10
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}


async def test_silent_connections_are_closed(fragile: Server) -> None:
    emptied(fragile)
    async with proxied(fragile) as proxy, application(proxy.url(user=WORKER)) as app:

        @app.task(name="t", max_attempts=10)
        async def body(number: int) -> int:
            return number

        async with app.worker():
            assert await (await body.enqueue(0)).result(SLACK) == 0
            await silent_for_a_lease(proxy)
            came_back_at = asyncio.get_running_loop().time()
            handle = await enqueued(app, body.prepare(1).new_task)
            assert await handle.result(BOUND + SLACK) == 1
            took = asyncio.get_running_loop().time() - came_back_at
    assert took < BOUND + SLACK


def restart(server: Server) -> None:
    """Kill the server like a crash, and start it again."""
    server.stop(immediately=True)
    server.start()


async def silent_for_a_lease(proxy: Proxy) -> None:
    """Drop all traffic for twice a lease, then pass only new connections."""
    proxy.swallow()
    await asyncio.sleep(2 * FAST.lease)
    proxy.forget()


async def enqueued(app: Tidegate, task: NewTask) -> Handle[Any]:
    """Enqueue a task; retry after a silent connection. Its id makes it the same task."""
    while True:
        try:
            return app.handle((await core_of(app).enqueue_prepared(task)).task_id)
        except StoreUnavailableError:
            await asyncio.sleep(0)


async def as_async(truth: bool) -> bool:
    return truth
