"""Retention during other work: short transactions that neither wait for others nor block them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from store_build import Build, SettableClock, expire, ids_of, succeeded

from tidegate.domain.states import State
from tidegate.store.postgres import deletion
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
NOW = {"finished_seconds": 1.0, "dead_seconds": 1.0}


@pytest.fixture
async def store(worker_url: str, clock: SettableClock) -> AsyncIterator[PostgresStore]:
    """A store whose clock is moved by hand."""
    one = PostgresStore(worker_url, clock=clock)
    yield one
    await one.close()


@pytest.fixture
def build(store: PostgresStore, clock: SettableClock) -> Build:
    return Build(store, clock)


async def finished(build: Build, count: int) -> list[str]:
    """Store tasks that ended long ago."""
    tasks = await build.running(count, queue="done")
    await build.done(*(succeeded(task.fence) for task in tasks))
    build.clock.advance(60)
    return ids_of(tasks)


async def test_delete_expired_skips_locked_rows_and_deletes_them_the_next_time(
    build: Build, worker_url: str
) -> None:
    held, *others = await finished(build, 4)
    dead_tasks = await build.in_state(State.DEAD)
    build.clock.advance(60)
    other = await asyncpg.connect(worker_url)
    async with other.transaction():
        await other.execute("SELECT 1 FROM tidegate.archive WHERE task_id = $1 FOR UPDATE", held)
        await other.execute("SELECT 1 FROM tidegate.dead WHERE task_id = $1 FOR UPDATE", dead_tasks)
        async with asyncio.timeout(SOON):
            assert await expire(build.store, **NOW) == len(others)
        assert set(await build.states([held, *others, dead_tasks])) == {held, dead_tasks}
    await other.close()
    assert await expire(build.store, **NOW) == 2
    await build.sound()


async def test_other_operations_run_during_delete_expired(
    store: PostgresStore, build: Build, clock: SettableClock
) -> None:
    old = await finished(build, 20)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def half_a_sweep(db: PostgresSession) -> None:
        tasks = await db.column(load("list_final_tasks")["archive"], 0.0, "0" * 32, clock.now, 1.0, 10)
        await deletion.delete_tasks(db, tasks)
        held.set()
        await go_on.wait()

    sweeping = asyncio.create_task(database_of(store).transact(half_a_sweep))
    async with asyncio.timeout(SOON):
        await held.wait()
        tasks = await build.running(5)
        await build.done(*(succeeded(task.fence) for task in tasks))
        await build.one(key="k")
        assert await store.cancel([await build.one()])
        assert await expire(store, **NOW) == 10, "the other half; what is held is stepped over"
        assert set(await build.states(old)) == set(old[:10])
        go_on.set()
        await sweeping
    assert await build.states(old) == {}
    await build.sound()


async def test_delete_expired_works_in_small_batches(store: PostgresStore, build: Build) -> None:
    old = await finished(build, 250)
    rounds = []
    while gone := await expire(store, **NOW, limit=100):
        rounds.append(gone)
    assert rounds == [100, 100, 50]
    assert await build.states(old) == {}


def database_of(store: PostgresStore) -> Database:
    return store._database
