"""Tasks on PostgreSQL alone: wake-ups, a connection pooler, and transactions of the caller."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import psycopg
import pytest

from pgserver import Bouncer, NotHereError, Server, pgbouncer
from postgres_support import SCHEMA, emptied
from support import FAST, all_final, until
from tidegate import Pool, State, Tidegate
from tidegate.internals import core_of
from tidegate.store.postgres.roles import role

pytestmark = pytest.mark.anyio

WORKER = role(SCHEMA, "worker")
SECONDS = 10.0
"""In which what comes by a hint has begun, on a machine that is busy with other tests; polls are farther apart."""


@pytest.fixture
def url(postgres: Server) -> str:
    emptied(postgres)
    return postgres.url(user=WORKER)


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidegate]:
    one = Tidegate(url, timings=FAST, pools=[Pool(concurrency=100, poll_interval=60.0)])
    yield one
    await one.aclose()


@pytest.fixture(scope="module")
def narrow(postgres: Server) -> Iterator[Bouncer]:
    """A pooler with fewer connections to the server than ask for them."""
    try:
        with pgbouncer(postgres, users=[WORKER], connections=4) as started:
            yield started
    except NotHereError as error:
        pytest.skip(str(error))


# --- wake-ups ----------------------------------------------------------------------------------------


async def test_no_size_and_no_name_keeps_a_task_from_waking_an_idle_worker(app: Tidegate, url: str) -> None:
    texts = ["x" * 7_999, "x" * 8_000, "x" * 300_000, "é" * 4_000]
    queues = ["q" * 63, "q" * 64, 'Line "one" of 🙂s']
    other = Tidegate(url, timings=FAST)

    async def length(text: str) -> int:
        return len(text)

    app.task(name="length")(length)
    task = other.task(name="length")(length)
    async with app.worker():
        for text in texts:
            assert await (await task.enqueue(text)).result(timeout=SECONDS) == len(text)
        for queue in queues:
            assert await (await task.using(queue=queue).enqueue("x")).result(timeout=SECONDS) == 1
        many = await other.enqueue_many(task.prepare("x") for _ in range(5_000))
        rows = await all_final(other, many)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    await other.aclose()


# --- a connection pooler -----------------------------------------------------------------------------


async def test_three_workers_behind_a_narrow_pooler_start_each_task_once(
    url: str, narrow: Bouncer, postgres: Server
) -> None:
    started: Counter[int] = Counter()
    before = len(postgres.log())

    async def function(number: int) -> None:
        started[number] += 1

    async with AsyncExitStack() as stack:
        for _ in range(3):
            pools = [Pool(concurrency=20, poll_interval=0.05)]
            one = Tidegate(narrow.url(user=WORKER), timings=FAST, pools=pools)
            stack.push_async_callback(one.aclose)

            task = one.task(name="t")(function)
            await stack.enter_async_context(one.worker())
        ids = [(await task.enqueue(number)).id for number in range(100)]
        ids += await one.enqueue_many(task.prepare(number) for number in range(100, 500))
        rows = await all_final(one, ids)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert started == Counter(range(500))
    assert "prepared statement" not in postgres.log()[before:]
    with postgres.connect() as admin:
        held = admin.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    assert held == (0,)


# --- transactions of the caller ----------------------------------------------------------------------


async def test_a_savepoint_that_is_rolled_back_takes_its_task_and_its_key_along(
    app: Tidegate, url: str
) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    connection: Any = await asyncpg.connect(url)
    async with connection.transaction():
        kept = await function.using(conn=connection).enqueue(1)
        undone = connection.transaction()
        await undone.start()
        gone = await function.using(conn=connection, key="k").enqueue(2)
        await undone.rollback()
        again = await function.using(conn=connection, key="k").enqueue(3)
    await connection.close()
    store = await core_of(app).opened_store()
    assert set(await store.read_tasks([kept.id, gone.id, again.id])) == {kept.id, again.id}


async def test_a_savepoint_of_psycopg_does_so_too(app: Tidegate, url: str) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    def enqueue() -> tuple[str, str]:
        with psycopg.connect(url) as connection:
            kept = function.using(conn=connection).enqueue_sync(1)
            with connection.transaction() as savepoint:
                gone = function.using(conn=connection, key="k").enqueue_sync(2)
                raise psycopg.Rollback(savepoint)
        return kept.id, gone.id

    kept, gone = await asyncio.to_thread(enqueue)
    store = await core_of(app).opened_store()
    assert set(await store.read_tasks([kept, gone])) == {kept}
    assert (await function.using(key="k").enqueue(3)).created


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_a_waiter_for_a_key_gets_the_task_when_the_other_transaction_rolls_back(
    app: Tidegate, url: str, isolation: str
) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    first, second = [await asyncpg.connect(url) for _ in range(2)]
    held = first.transaction(isolation=isolation)
    await held.start()
    never = await function.using(conn=first, key="k").enqueue(1)

    async def other() -> str:
        async with second.transaction(isolation=isolation):
            return (await function.using(conn=second, key="k").enqueue(1)).id

    waiting = asyncio.create_task(other())
    await until(lambda: _waits(first, second), what="the second waits for the first")
    await held.rollback()
    task_id = await waiting
    await asyncio.gather(first.close(), second.close())
    store = await core_of(app).opened_store()
    assert set(await store.read_tasks([never.id, task_id])) == {task_id}


async def _waits(one: Any, other: Any) -> bool:
    pids = other.get_server_pid(), one.get_server_pid()
    return bool(await one.fetchval("SELECT $2 = ANY (pg_blocking_pids($1))", *pids))
