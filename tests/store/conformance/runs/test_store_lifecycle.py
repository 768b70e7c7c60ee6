"""Opening, closing, the clock, and waiting for commits."""

from __future__ import annotations

import asyncio

import pytest
from store_back_ends import Clients
from store_build import START, Build, SettableClock

from tidegate.errors import TaskNotFoundError
from tidegate.store.protocol import Store

SOON = 5.0


async def test_opening_twice_is_harmless(store: Store) -> None:
    await store.open()
    await store.open()


async def test_closing_works_twice_and_without_having_opened(clients: Clients) -> None:
    client = clients()
    await client.close()
    await client.open()
    await client.close()
    await client.close()


async def test_a_store_works_without_open(clients: Clients, clock: SettableClock) -> None:
    client = clients()
    task_id = await Build(client, clock).one()
    assert set(await client.read_tasks([task_id])) == {task_id}
    await client.close()


async def test_tasks_are_still_stored_after_close(build: Build, clients: Clients) -> None:
    task_id = await build.one(args=b"kept")
    await build.store.close()
    again = clients()
    assert await again.get_payload(task_id) == (b"kept", "json/1")
    await again.close()


async def test_migrating_an_up_to_date_store_applies_nothing(store: Store) -> None:
    assert await store.migrate() == []


async def test_two_clients_can_migrate_an_empty_store_at_once(unmade: Clients) -> None:
    one, other = unmade(), unmade()
    applied = [name for names in await asyncio.gather(one.migrate(), other.migrate()) for name in names]
    assert applied
    assert len(set(applied)) == len(applied)
    assert await one.migrate() == []
    assert await one.check_integrity() == []
    await asyncio.gather(one.close(), other.close())


async def test_the_stores_clock_is_the_one_it_was_given(store: Store, clock: SettableClock) -> None:
    assert await store.now() == START
    clock.advance(1.5)
    assert await store.now() == START + 1.5


async def test_an_empty_store_has_no_problems_and_no_rows(store: Store, build: Build) -> None:
    assert await store.check_integrity() == []
    assert await store.read_tasks([build.id()]) == {}
    assert await store.get_queue_stats() == []
    with pytest.raises(TaskNotFoundError):
        await store.get_result(build.id())


async def test_a_commit_of_the_same_client_wakes_a_waiter(store: Store, build: Build) -> None:
    await store.wait_for_change(SOON)
    waiting = asyncio.create_task(_counted(store))
    await asyncio.sleep(0)
    await build.one()
    assert await asyncio.wait_for(waiting, SOON)


async def test_a_commit_of_another_client_wakes_a_waiter(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    waiting = asyncio.create_task(_counted(store))
    await asyncio.sleep(0)
    await Build(twin, clock).one()
    assert await asyncio.wait_for(waiting, SOON)


async def test_a_change_between_two_waits_ends_the_second_at_once(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    await _quiet(store)
    await Build(twin, clock).one()
    assert await _seconds(store, timeout=SOON) < SOON / 2


async def test_a_wait_without_a_change_ends_at_its_timeout(store: Store) -> None:
    await _quiet(store)  # a wait that lasted
    assert await _seconds(store, timeout=0.05) < SOON


async def test_one_commit_wakes_every_waiter(store: Store, build: Build) -> None:
    waiting = [asyncio.create_task(_counted(store)) for _ in range(20)]
    await asyncio.sleep(0)
    await build.one()
    assert all(await asyncio.wait_for(asyncio.gather(*waiting), SOON))


async def test_a_commit_wakes_waiters_on_two_event_loops(store: Store, build: Build) -> None:
    elsewhere = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(_counted(store))))
    here = asyncio.create_task(_counted(store))
    for _ in range(50):
        await build.one()
        if elsewhere.done() and here.done():
            break
        await asyncio.sleep(0.01)
    assert await asyncio.wait_for(asyncio.gather(elsewhere, here), SOON) == [True, True]


async def _quiet(store: Store) -> None:
    """Wait until this task has seen every commit so far."""
    while await _seconds(store, timeout=0.05) < 0.04:
        pass


async def _counted(store: Store) -> bool:
    """Wait until a task is stored; return False if no change was noticed in time."""
    while True:
        before = asyncio.get_running_loop().time()
        await store.wait_for_change(SOON)
        if await store.get_queue_stats():
            return True
        if asyncio.get_running_loop().time() - before >= SOON:
            return False


async def _seconds(store: Store, *, timeout: float) -> float:
    loop = asyncio.get_running_loop()
    before = loop.time()
    await store.wait_for_change(timeout)
    return loop.time() - before
