"""Figures by queue, and manifests."""

from __future__ import annotations

import pytest
from store_build import START, Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.outcome import Cancelled, Released
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats

MINUTE = 60.0


async def stats(build: Build, queue: str = "main") -> QueueStats:
    [mine] = [one for one in await build.store.queue_stats() if one.queue == queue]
    return mine


async def test_each_state_is_counted_by_queue(build: Build, clock: SettableClock) -> None:
    for n, state in enumerate(
        (State.READY, State.RUNNING, State.RETRYING, State.SCHEDULED, State.DEAD), start=1
    ):
        for _ in range(n):
            await build.in_state(state, queue=f"only {state}")
    await build.enqueue(2, queue="a\x01")
    found = {one.queue: one for one in await build.store.queue_stats()}
    assert list(found) == sorted(found)
    assert found["only ready"].ready == 1
    assert found["only running"].running == 2
    assert found["only retrying"].retrying == 3
    assert found["only scheduled"].scheduled == 4
    assert found["only dead"].dead == 5
    assert found["a\x01"] == QueueStats("a\x01", ready=2, oldest_ready_at=START)


async def test_the_oldest_ready_task_is_the_one_that_waits_longest(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run(queue="main")
    await build.done(retrying(task.fence, delay=10.0, offset=-1_000.0))
    clock.advance(5)
    await build.one()
    clock.advance(5)
    await build.store.promote()
    assert (await stats(build)).oldest_ready_at == START + 5


async def test_every_final_state_counts_as_done_and_no_other(build: Build, clock: SettableClock) -> None:
    tasks = await build.running(6, queue="main")
    await build.done(
        succeeded(tasks[0].fence),
        dead(tasks[1].fence),
        Cancelled(tasks[2].fence),
        retrying(tasks[3].fence),
        Released(tasks[4].fence, "shutdown"),
    )
    await build.store.cancel([await build.one()])
    assert (await stats(build)).done_last_10_minutes == 4


async def test_the_last_full_minute_is_not_the_one_under_way(build: Build, clock: SettableClock) -> None:
    await finish(build, 3)
    assert (await stats(build)).done_last_minute == 0
    clock.advance(MINUTE)
    await finish(build, 2)
    now = await stats(build)
    assert (now.done_last_minute, now.done_last_10_minutes) == (3, 5)
    clock.advance(MINUTE)
    assert (await stats(build)).done_last_minute == 2
    clock.advance(MINUTE)
    assert (await stats(build)).done_last_minute == 0


async def test_what_finished_longer_ago_is_not_counted(build: Build, clock: SettableClock) -> None:
    await finish(build, 5)
    await build.one()
    clock.advance(9 * MINUTE + 59)
    assert (await stats(build)).done_last_10_minutes == 5
    clock.advance(1)
    now = await stats(build)
    assert (now.done_last_10_minutes, now.ready) == (0, 1)


async def test_a_queue_is_listed_while_it_holds_a_task_or_finished_one_lately(
    build: Build, clock: SettableClock
) -> None:
    await finish(build, 1)
    assert (await stats(build)).done_last_10_minutes == 1
    clock.advance(11 * MINUTE)
    assert await build.store.queue_stats() == []


async def test_history_is_zero_for_a_queue_that_never_finished_any(build: Build) -> None:
    await build.in_state(State.RETRYING, queue="main")
    await build.one()
    assert (await stats(build)).history_seconds == 0


async def test_history_reaches_back_to_the_first_completion(build: Build, clock: SettableClock) -> None:
    clock.advance(50)
    await finish(build, 1)
    assert 0 < (await stats(build)).history_seconds <= 1
    clock.advance(20)
    await finish(build, 1)
    assert (await stats(build)).history_seconds == pytest.approx(20)
    clock.advance(100)
    assert (await stats(build)).history_seconds == pytest.approx(120)


async def test_history_is_the_whole_window_for_a_queue_that_finished_before(
    build: Build, clock: SettableClock
) -> None:
    await finish(build, 1)
    await build.one()
    clock.advance(20 * MINUTE)
    idle = await stats(build)
    assert 540 <= idle.history_seconds <= 600
    assert idle.done_last_10_minutes == 0
    await finish(build, 1)
    busy = await stats(build)
    assert busy.history_seconds == idle.history_seconds


async def test_history_of_one_queue_says_nothing_of_another(build: Build) -> None:
    await finish(build, 1, queue="other")
    await build.one()
    assert (await stats(build)).history_seconds == 0


async def test_counts_do_not_change_when_finished_tasks_are_swept(build: Build, clock: SettableClock) -> None:
    await finish(build, 4)
    clock.advance(1)
    await build.store.sweep(finished_seconds=0.5, dead_seconds=0.5)
    assert (await stats(build)).done_last_10_minutes == 4


async def test_manifests_are_kept_by_application(store: Store) -> None:
    assert await store.manifests() == {}
    await store.save_manifest("b", {"functions": {"f": {"queue": "é\x00"}}, "n": 1.5, "none": None})
    await store.save_manifest("a", {})
    await store.save_manifest("b", {"functions": ["g"]})
    assert await store.manifests() == {"a": {}, "b": {"functions": ["g"]}}


async def finish(build: Build, count: int, queue: str = "main") -> None:
    worker = await build.worker()
    await build.enqueue(count, queue=queue)
    tasks = await build.claim(worker, count, queues=(queue,))
    await build.done(*(succeeded(task.fence) for task in tasks))
