"""Statistics by queue, and manifests."""

from __future__ import annotations

import pytest
from store_build import START, Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.cli.doctor import check_capacity
from tidegate.domain.outcome import Cancelled, Released
from tidegate.domain.spec import Priority, Window
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.policy.backlog import WaitKind
from tidegate.policy.drain import Drain, DrainKind
from tidegate.store.live_workers import load_live_workers
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats
from tidegate.worker.maintenance.capacity import CapacityWatch

MINUTE = 60.0


async def stats(build: Build, queue: str = "main") -> QueueStats:
    [mine] = [one for one in await build.store.get_queue_stats() if one.queue == queue]
    return mine


async def test_each_state_is_counted_by_queue(build: Build, clock: SettableClock) -> None:
    for n, state in enumerate(
        (State.READY, State.RUNNING, State.RETRYING, State.SCHEDULED, State.DEAD), start=1
    ):
        for _ in range(n):
            await build.in_state(state, queue=f"only {state}")
    await build.enqueue(2, queue="a\x01")
    found = {one.queue: one for one in await build.store.get_queue_stats()}
    assert list(found) == sorted(found)
    assert found["only ready"].ready == 1
    assert found["only running"].running == 2
    assert found["only retrying"].retrying == 3
    assert found["only scheduled"].scheduled == 4
    assert found["only dead"].dead == 5
    unknown = Drain(DrainKind.UNKNOWN, text="no task of it has finished yet")
    assert found["a\x01"] == QueueStats(
        "a\x01", ready=2, oldest_ready_at=START, enqueued_last_minute=2, drain=unknown
    )


async def test_new_tasks_of_the_last_minute_are_counted_in_proportion(
    build: Build, clock: SettableClock
) -> None:
    clock.advance(-clock.now % MINUTE)
    await build.enqueue(3)
    for seconds, expected in ((30, 3), (60, 2), (40, 0)):
        clock.advance(seconds)
        assert (await stats(build)).enqueued_last_minute == expected


async def test_oldest_ready_is_the_task_that_has_waited_longest(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="main")
    await build.done(retrying(task.fence, delay=10.0, offset=-1_000.0))
    clock.advance(5)
    await build.one()
    clock.advance(5)
    await build.store.promote()
    assert (await stats(build)).oldest_ready_at == START + 5


async def test_only_final_states_count_as_done(build: Build, clock: SettableClock) -> None:
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


async def test_the_last_minute_counts_what_just_finished_and_the_minute_before_in_part(
    build: Build, clock: SettableClock
) -> None:
    clock.advance(MINUTE - 1)
    await finish(build, 3)
    clock.advance(2)
    assert (await stats(build)).done_last_minute == 3, "all within the last 60 seconds"
    await finish(build, 2)
    assert (await stats(build)).done_last_minute == 5
    clock.advance(MINUTE)
    now = await stats(build)
    assert (now.done_last_minute, now.done_last_10_minutes) == (2, 5)
    clock.advance(MINUTE / 2)
    assert (await stats(build)).done_last_minute == 1
    clock.advance(MINUTE / 2)
    assert (await stats(build)).done_last_minute == 0


async def test_tasks_that_finished_before_the_window_are_not_counted(
    build: Build, clock: SettableClock
) -> None:
    await finish(build, 5)
    await build.one()
    clock.advance(9 * MINUTE + 59)
    assert (await stats(build)).done_last_10_minutes == 5
    clock.advance(1)
    now = await stats(build)
    assert (now.done_last_10_minutes, now.ready) == (0, 1)


async def test_a_queue_is_listed_if_it_has_a_task_or_finished_one_recently(
    build: Build, clock: SettableClock
) -> None:
    await finish(build, 1)
    assert (await stats(build)).done_last_10_minutes == 1
    clock.advance(11 * MINUTE)
    assert await build.store.get_queue_stats() == []


async def test_history_is_zero_for_a_queue_that_never_finished_a_task(build: Build) -> None:
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


async def test_each_queue_has_its_own_history(build: Build) -> None:
    await finish(build, 1, queue="other")
    await build.one()
    assert (await stats(build)).history_seconds == 0


async def test_counts_do_not_change_when_finished_tasks_are_deleted(
    build: Build, clock: SettableClock
) -> None:
    await finish(build, 4)
    clock.advance(1)
    await expire(build.store, finished_seconds=0.5, dead_seconds=0.5)
    assert (await stats(build)).done_last_10_minutes == 4


async def test_tasks_over_an_in_flight_limit_are_paced_and_never_ready(build: Build) -> None:
    limits = Limits(max_in_flight=1)
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    await build.enqueue(50, upstream="u")
    assert len(await build.claim(await build.worker())) == 1
    now = await stats(build)
    assert (now.ready, now.paced, now.blocked, now.running) == (0, 49, 0, 1)
    (wait,) = now.waits
    assert (wait.kind, wait.by, wait.tasks) == (WaitKind.PACED, "upstream u", 49)
    assert "max_in_flight 1" in wait.reason
    assert now.oldest_ready_at == START
    (row,) = await build.store.list_upstreams()
    assert (row.ready, row.paced, row.block) == (49, 49, None)


async def test_tasks_over_a_rate_limit_are_paced_and_drain_at_its_rate(
    build: Build, clock: SettableClock
) -> None:
    limits = Limits((Window("requests_per_minute", 30, MINUTE),))
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    await finish(build, 3)
    clock.advance(9 * MINUTE)
    await build.enqueue(60, upstream="u", priority=Priority.BULK)
    await build.enqueue(2, queue="other", upstream="u")
    worker = await build.worker()
    for _ in range(5):
        await build.claim(worker)
        now = await stats(build)
        assert (now.ready, now.blocked) == (0, 0)
        clock.advance(2.0)
    assert now.drain.constraint == "requests"
    assert now.drain.seconds == pytest.approx(2.0 * (62 - 5), abs=2.5), "not by the idle time before"


async def test_unserved_tasks_are_blocked_if_unserved_is_given(build: Build) -> None:
    await build.enqueue(2)
    await build.enqueue(3, function="app:old")
    store = build.store
    assert (await stats(build)).ready == 5
    await store.save_manifest("main:app", {"functions": {"app:work": {}}})
    await store.save_manifest("app:app", {"functions": {"app:work": {}, "app:old": {}}})
    await build.worker(application="main:app")
    assert [worker.application for worker in await store.list_workers()] == ["main:app"]
    unserved = (await load_live_workers(store, await store.now())).unserved
    (now,) = await store.get_queue_stats(unserved)
    assert (now.ready, now.blocked) == (2, 3)
    assert "declares the function app:old" in now.waits[0].reason
    await build.worker(application="app:app")
    (now,) = await store.get_queue_stats((await load_live_workers(store, await store.now())).unserved)
    assert (now.ready, now.blocked, now.waits) == (5, 0, ())


async def test_manifests_are_stored_by_application(store: Store) -> None:
    assert await store.load_manifests() == {}
    await store.save_manifest("b", {"functions": {"f": {"queue": "é\x00"}}, "n": 1.5, "none": None})
    await store.save_manifest("a", {})
    await store.save_manifest("b", {"functions": ["g"]})
    assert await store.load_manifests() == {"a": {}, "b": {"functions": ["g"]}}


async def finish(build: Build, count: int, queue: str = "main") -> None:
    worker = await build.worker()
    await build.enqueue(count, queue=queue)
    tasks = await build.claim(worker, count, queues=(queue,))
    await build.done(*(succeeded(task.fence) for task in tasks))


async def test_a_slot_shortage_is_logged_once_at_the_second_check(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    store = build.store
    limits = Limits((Window("requests_per_minute", 600, MINUTE),))
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    functions = {"app:work": {"queue": "main", "upstream": "u"}}
    await store.save_manifest("app:app", {"functions": functions})
    await build.worker(slots=8, queues=("main",), application="app:app")
    for _ in range(40):
        await store.report_probe("u", is_good=True, seconds=3.0)
    watch = CapacityWatch(store)
    await watch.run_once()
    assert caplog.messages == []
    await watch.run_once()
    await watch.run_once()
    (warning,) = caplog.messages
    assert "upstream u: 600 in 1 min need 30 tasks at once" in warning
    (finding,) = await check_capacity(store)
    assert (finding.level, finding.name) == ("warn", "slots")
