"""Maintenance: promotion and retention."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, dead, expire, ids_of, retrying, succeeded

from tidegate.domain.outcome import Released
from tidegate.domain.retention import Retention
from tidegate.domain.states import State
from tidegate.errors import TaskNotFoundError
from tidegate.store.protocol import Store
from tidegate.store.rows import ProgressUpdate, TaskFilter
from tidegate.store.step_rows import StepBegin
from tidegate.worker.maintenance.loop import MaintenanceLoop
from tidegate.worker.settings import Timings

HOUR = 3_600.0
KEEP_ALL = {"finished_seconds": float("inf"), "dead_seconds": float("inf")}


async def test_only_due_tasks_are_promoted(build: Build, clock: SettableClock) -> None:
    due = await build.one(delay_seconds=10.0)
    later = await build.one(delay_seconds=10.1)
    retried = await build.in_state(State.RETRYING)
    clock.advance(10)
    assert await build.store.promote() == 1
    assert await build.store.promote() == 0
    assert await build.states([due, later, retried]) == {
        due: State.READY, later: State.SCHEDULED, retried: State.RETRYING
    }  # fmt: skip
    assert (await build.row(due)).due_at == START + 10


async def test_promotion_works_in_batches_longest_due_first(build: Build, clock: SettableClock) -> None:
    ids = [await build.one(delay_seconds=60.0 - n) for n in range(5)]
    clock.advance(100)
    assert [await build.store.promote(2) for _ in range(4)] == [2, 2, 1, 0]
    assert ids_of(await build.claim(await build.worker())) == ids[::-1]


async def test_a_promoted_task_has_the_rank_it_was_given_when_it_began_to_wait(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run(queue="q")
    await build.done(retrying(task.fence, delay=10.0, offset=-5.0))
    other = await build.one(queue="q", delay_seconds=6.0)
    clock.advance(1_000)
    assert await build.store.promote() == 2
    assert ids_of(await build.claim(await build.worker(), queues=("q",))) == [task.fence.task_id, other]


async def test_two_maintenance_processes_promote_each_task_once(
    build: Build, clients: Clients, clock: SettableClock
) -> None:
    await build.enqueue(300, delay_seconds=1.0)
    clock.advance(1)
    async with opened(clients) as other:
        moved = 0
        while some := sum(await asyncio.gather(build.store.promote(40), other.promote(40))):
            moved += some
    assert moved == 300
    await build.sound()


async def test_fifty_thousand_tasks_due_much_later_do_not_slow_promotion(
    build: Build, clock: SettableClock
) -> None:
    for _ in range(10):
        await build.enqueue(5_000, delay_seconds=24 * HOUR)
    now = await build.enqueue(100)
    assert ids_of(await build.claim(await build.worker(), 200)) == now
    assert await build.store.promote() == 0


async def test_expired_final_tasks_are_deleted_with_everything_that_belongs_to_them(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run(queue="q", key="k", key_seconds=HOUR)
    task_id = task.fence.task_id
    await build.store.save_progress([ProgressUpdate(task.fence, 1, 1)])
    await build.done(Released(task.fence, "again"))
    [task] = await build.claim(await build.worker(), queues=("q",))
    await build.done(succeeded(task.fence, b"secret"))
    await build.in_state(State.CANCELLED)
    clock.advance(HOUR - 1)
    assert await expire(build.store, finished_seconds=HOUR, dead_seconds=HOUR) == 0
    clock.advance(2)
    assert await expire(build.store, finished_seconds=HOUR, dead_seconds=HOUR) == 3  # two tasks and a key
    assert await build.store.read_tasks([task_id]) == {}
    assert await build.store.get_history(task_id) == []
    with pytest.raises(TaskNotFoundError):
        await build.store.get_result(task_id)
    await build.sound()


async def test_dead_letters_have_their_own_retention(build: Build, clock: SettableClock) -> None:
    dead_tasks, done = await build.in_state(State.DEAD), await build.in_state(State.SUCCEEDED)
    clock.advance(2 * HOUR)
    assert await expire(build.store, finished_seconds=HOUR, dead_seconds=3 * HOUR) == 1
    assert set(await build.states([dead_tasks, done])) == {dead_tasks}
    clock.advance(2 * HOUR)
    assert await expire(build.store, finished_seconds=HOUR, dead_seconds=3 * HOUR) == 1
    assert await build.store.list_tasks(TaskFilter()) == []


async def test_maintenance_keeps_finished_tasks_for_seven_days_and_dead_ones_for_ninety(
    build: Build, clock: SettableClock
) -> None:
    done, gone, dead_tasks = [
        await build.in_state(state) for state in (State.SUCCEEDED, State.CANCELLED, State.DEAD)
    ]
    for days, left in (
        (6.9, {done, gone, dead_tasks}),
        (0.2, {dead_tasks}),
        (82.8, {dead_tasks}),
        (0.2, set()),
    ):
        clock.advance(days * 24 * HOUR)
        await deleted_by_maintenance(build.store)
        assert set(await build.states([done, gone, dead_tasks])) == left
    await build.sound()


async def deleted_by_maintenance(store: Store) -> None:
    """Run maintenance with the default times until it has deleted expired rows."""
    swept = asyncio.Event()

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def checkpoint(self) -> None:
            await store.checkpoint()
            swept.set()

    watched: Any = Watched()
    maintenance = MaintenanceLoop(watched, Timings(), Retention(), rng=random.Random(1), clock=time.monotonic)
    maintenance.start()
    async with asyncio.timeout(20):
        await swept.wait()
    await maintenance.stop()


async def test_maintenance_enters_steps_whose_run_is_over_in_the_ledger_of_doubts(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.begin_steps([StepBegin(fence, "k", 1, "call")])
    await build.done(dead(fence))
    found = asyncio.Event()

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(build.store, name)

        async def find_doubts(self, limit: int) -> int:
            count = await build.store.find_doubts(limit)
            found.set()
            return count

    watched: Any = Watched()
    maintenance = MaintenanceLoop(watched, Timings(), Retention(), rng=random.Random(1), clock=time.monotonic)
    maintenance.start()
    async with asyncio.timeout(20):
        await found.wait()
    await maintenance.stop()
    assert [entry.task_id for entry in await build.store.list_doubts()] == [fence.task_id]


async def test_live_tasks_are_never_deleted(build: Build, clock: SettableClock) -> None:
    states = [State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING]
    ids = [await build.in_state(state) for state in states]
    clock.advance(1_000 * HOUR)
    assert await expire(build.store, finished_seconds=0.0, dead_seconds=0.0) == 0
    assert list((await build.states(ids)).values()) == states


async def test_delete_expired_deletes_at_most_its_limit_of_each_kind(
    build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(6)
    await build.done(
        *(succeeded(task.fence) for task in tasks[:3]), *(dead(task.fence) for task in tasks[3:])
    )
    clock.advance(HOUR)
    swept = [await expire(build.store, finished_seconds=1.0, dead_seconds=1.0, limit=2) for _ in range(3)]
    assert swept == [4, 2, 0]


async def test_with_infinite_retention_only_expired_keys_are_deleted(
    build: Build, clock: SettableClock
) -> None:
    await build.in_state(State.SUCCEEDED, key="k", key_seconds=10.0)
    await build.one(unique="u", unique_seconds=10.0)
    await build.one(key="l", key_seconds=1_000.0)
    clock.advance(11)
    assert await expire(build.store, **KEEP_ALL) == 2
    assert await expire(build.store, **KEEP_ALL) == 0


async def test_old_counters_are_deleted_and_an_old_queue_is_no_longer_listed(
    build: Build, clock: SettableClock
) -> None:
    await build.in_state(State.SUCCEEDED, queue="long ago")
    clock.advance(500 * 86_400)
    await build.store.compact_history()
    assert await expire(build.store, **KEEP_ALL) >= 1
    await build.in_state(State.READY, queue="now")
    assert [one.queue for one in await build.store.get_queue_stats()] == ["now"]
    assert await expire(build.store, **KEEP_ALL) == 0


async def test_upkeep_is_harmless_at_any_time(store: Store, build: Build) -> None:
    await store.checkpoint()
    await build.enqueue(100)
    await store.checkpoint()
    await build.sound()
