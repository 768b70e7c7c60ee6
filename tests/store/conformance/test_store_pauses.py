"""Pauses of queues and task functions: every claim reads them, and no task moves."""

from __future__ import annotations

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, ids_of, succeeded

from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.limits.pauses import Pause, PauseKind
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.protocol import Store
from tidegate.store.rows import CrashPolicy

pytestmark = pytest.mark.anyio

QUEUE, FUNCTION = PauseKind.QUEUE, PauseKind.FUNCTION
BOTH = {"app:work": CrashPolicy(), "app:other": CrashPolicy()}


async def paused(store: Store, kind: PauseKind, name: str, why: str = "") -> None:
    assert await store.pause(kind, name, by="ada", why=why)


async def test_tasks_of_a_paused_queue_are_not_claimed_by_any_process_and_keep_their_place(
    store: Store, build: Build, clients: Clients
) -> None:
    waiting = await build.enqueue(3, queue="batch")
    other = await build.one(queue="main")
    await paused(store, QUEUE, "batch")

    async with opened(clients) as elsewhere:
        claim = await elsewhere.claim(build.request(await build.worker()))
    assert ids_of(claim.tasks) == [other]
    assert await build.states(waiting) == dict.fromkeys(waiting, State.READY)

    assert await store.resume(QUEUE, "batch")
    assert ids_of(await build.claim(await build.worker())) == waiting


async def test_a_paused_queue_gives_nothing_to_a_worker_that_names_its_queues(
    store: Store, build: Build
) -> None:
    await build.one(queue="batch")
    other = await build.one(queue="main")
    await paused(store, QUEUE, "batch")
    worker = await build.worker()
    assert await build.claim(worker, queues=("batch",)) == []
    assert ids_of(await build.claim(worker, queues=("batch", "main"), is_strict=True)) == [other]


async def test_a_paused_function_gives_nothing_in_any_queue_and_others_go_on(
    store: Store, build: Build
) -> None:
    for queue in ("a", "b"):
        await build.one(queue=queue)
    others = [await build.one(queue=queue, function="app:other") for queue in ("a", "b")]
    await paused(store, FUNCTION, "app:work")
    worker = await build.worker()
    assert ids_of(await build.claim(worker, functions=BOTH)) == others
    assert await store.resume(FUNCTION, "app:work")
    assert len(await build.claim(worker, functions=BOTH)) == 2


async def test_a_paused_backlog_larger_than_a_claim_holds_no_other_task_back(
    store: Store, build: Build
) -> None:
    await build.enqueue(30, queue="batch", priority=Priority.INTERACTIVE)
    other = await build.one(queue="main")
    await paused(store, QUEUE, "batch")
    assert ids_of(await build.claim(await build.worker(), 2)) == [other]


async def test_with_a_queue_for_each_user_a_paused_one_gives_nothing(
    store: Store, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "postgres"):
        monkeypatch.setattr(f"tidegate.store.{module}.claim.MANY_CHANNELS", 3)
    stopped = [await build.one(queue=f"user-{number}") for number in range(3)]
    others = [await build.one(queue=f"user-{number}") for number in range(3, 9)]
    for number in range(3):
        await paused(store, QUEUE, f"user-{number}")
    worker = await build.worker()
    assert ids_of(await build.claim(worker, 2)) == others[:2]
    assert ids_of(await build.claim(worker)) == others[2:]
    assert await build.claim(worker) == []
    assert await build.states(stopped) == dict.fromkeys(stopped, State.READY)


async def test_a_pause_and_a_rate_limit_hold_together(store: Store, build: Build) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", Limits(max_in_flight=1))])
    await build.one(upstream="u", queue="batch")
    first, second = await build.enqueue(2, upstream="u", queue="main")
    await paused(store, QUEUE, "batch")
    worker = await build.worker()
    (task,) = await build.claim(worker)
    assert task.fence.task_id == first
    assert await build.claim(worker) == []
    await build.done(succeeded(task.fence))
    assert ids_of(await build.claim(worker)) == [second]


async def test_a_run_that_has_begun_ends_as_usual_while_its_queue_is_paused(
    store: Store, build: Build
) -> None:
    task = await build.run(queue="batch")
    await paused(store, QUEUE, "batch")
    await build.done(succeeded(task.fence))
    assert await build.state(task.fence.task_id) is State.SUCCEEDED


async def test_a_paused_queue_accepts_tasks(store: Store, build: Build) -> None:
    await paused(store, QUEUE, "batch")
    assert await build.state(await build.one(queue="batch")) is State.READY


async def test_who_paused_it_when_and_why_is_kept_and_a_second_pause_changes_nothing(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await paused(store, FUNCTION, "app:work", why="bad prompt")
    await paused(store, QUEUE, "batch", why="migration")
    clock.advance(60.0)
    assert not await store.pause(QUEUE, "batch", by="grace", why="again")
    assert await store.list_pauses() == [
        Pause(QUEUE, "batch", START, "ada", "migration"),
        Pause(FUNCTION, "app:work", START, "ada", "bad prompt"),
    ]
    assert await store.resume(QUEUE, "batch")
    assert not await store.resume(QUEUE, "batch")


async def test_paused_tasks_count_as_blocked_with_the_reason_and_are_not_the_oldest(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await build.enqueue(2, queue="batch")
    await build.one(queue="main", function="app:other")
    await paused(store, QUEUE, "batch", why="migration")
    await paused(store, FUNCTION, "app:other")
    clock.advance(120.0)
    batch, main = await store.get_queue_stats()
    assert (batch.ready, batch.blocked, batch.oldest_ready_at) == (0, 2, None)
    assert batch.pause == Pause(QUEUE, "batch", START, "ada", "migration")
    (wait,) = batch.waits
    assert (wait.kind, wait.by, wait.tasks) == ("blocked", "queue batch", 2)
    assert wait.reason == "paused 2 min ago by ada (migration); `tidegate queues resume batch` ends it"
    assert (main.blocked, main.pause) == (1, None)
    assert main.waits[0].by == "function app:other"


async def test_a_paused_queue_without_tasks_is_listed(store: Store, build: Build) -> None:
    await paused(store, QUEUE, "batch")
    (stats,) = await store.get_queue_stats()
    assert (stats.queue, stats.ready, stats.pause is not None) == ("batch", 0, True)


async def test_any_text_can_be_stored_with_a_pause(store: Store, build: Build) -> None:
    assert await store.pause(QUEUE, "batch", by="\x00", why="\ud800")
    (pause,) = await store.list_pauses()
    assert (pause.paused_by, pause.why) == (r"\x00", r"\ud800")
