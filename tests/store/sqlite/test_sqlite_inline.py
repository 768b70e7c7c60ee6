"""The store without threads, for simulation: the same results, and wake-ups within one process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlite_support import other_writer, run_sql
from store_build import Build, SettableClock, dead, ids_of, retrying, succeeded

from tidegate.domain.states import State
from tidegate.errors import KeyConflictError, StoreBusyError, StoreUnavailableError
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore


def inline(path: Path, clock: SettableClock) -> SqliteStore:
    return SqliteStore(path, runner=InlineRunner(path), clock=clock)


async def test_tasks_go_through_all_states_without_a_thread(path: Path, clock: SettableClock) -> None:
    threads = set(threading.enumerate())
    store = inline(path, clock)
    build = Build(store, clock)
    tasks = await build.running(3)
    await build.done(succeeded(tasks[0].fence), retrying(tasks[1].fence, delay=5.0), dead(tasks[2].fence))
    clock.advance(5)
    assert await store.promote() == 1
    assert list((await build.states(ids_of(tasks))).values()) == [State.SUCCEEDED, State.READY, State.DEAD]
    with pytest.raises(KeyConflictError):
        await store.enqueue([build.new(key="k"), build.new(key="k", fingerprint=b"x")])
    with pytest.raises(StoreUnavailableError):
        await run_sql(store, "SELECT 1 FROM nothing")
    assert await store.check_integrity() == []
    await store.checkpoint()
    await store.close()
    await store.close()
    assert set(threading.enumerate()) == threads


async def test_a_commit_of_one_simulated_process_wakes_another(path: Path, clock: SettableClock) -> None:
    one, other = inline(path, clock), inline(path, clock)
    await one.open()
    received: list[str] = []

    async def listen() -> None:
        while len(received) < 3:
            await other.wait_for_change(30.0)
            received[:] = sorted(await other.load_manifests())

    listening = asyncio.create_task(listen())
    for app in ("a", "b", "c"):
        await asyncio.sleep(0)
        await one.save_manifest(app, {})
    await asyncio.wait_for(listening, 5.0)
    assert received == ["a", "b", "c"]
    await one.close()
    await other.close()


async def test_a_wait_ends_at_its_timeout_and_leaves_nothing_behind(path: Path, clock: SettableClock) -> None:
    store = inline(path, clock)
    await store.open()
    await store.wait_for_change(0.01)
    await store.wait_for_change(0.01)
    assert not store._runner._waiters  # type: ignore[attr-defined]
    await store.close()


async def test_a_call_that_cannot_begin_raises_store_busy(path: Path, clock: SettableClock) -> None:
    store = SqliteStore(path, runner=InlineRunner(path, busy_seconds=0.1), clock=clock)
    await store.open()
    build = Build(store, clock)
    with other_writer(path), pytest.raises(StoreBusyError):
        await build.one()
    await build.one()
    assert await run_sql(store, "SELECT count(*) FROM task", Mode.READ) == [(1,)]
    await store.close()


async def test_other_coroutines_run_between_calls(path: Path, clock: SettableClock) -> None:
    store = inline(path, clock)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(10):
        await store.get_queue_stats()
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    assert turns >= 10
    await store.close()
