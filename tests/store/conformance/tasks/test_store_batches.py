"""Enqueues too large for one transaction: no task is visible before the commit, all are after it."""

from __future__ import annotations

import asyncio
import time

import pytest
from store_build import START, Build, SettableClock, expire, ids_of

from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import KeyConflictError, NotAcceptedError, TaskNotFoundError, WrongStateError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, CancelStatus, NewTask, TaskFilter

DAY = 86_400.0


async def batched(build: Build, count: int = 3, batch: str = "s", **changes: object) -> list[str]:
    new = [build.new(**changes) for _ in range(count)]
    await build.store.enqueue_part(batch, new)
    return [task.id for task in new]


async def committed(build: Build, count: int = 3, **changes: object) -> list[str]:
    ids = await batched(build, count, **changes)
    assert await build.store.commit_batch("s") == {}
    return ids


async def moved(store: Store) -> int:
    total = 0
    while part := await store.release_batches():
        total += part
    return total


async def test_a_task_of_an_uncommitted_batch_is_invisible(build: Build) -> None:
    ids = await batched(build, key="k")
    store = build.store
    assert await store.read_tasks(ids) == {}
    assert await store.list_tasks(TaskFilter()) == []
    assert await store.get_queue_stats() == []
    assert await store.get_history(ids[0]) == []
    assert await build.claim(await build.worker()) == []
    assert await store.release_batches() == 0
    assert await store.cancel(ids) == dict.fromkeys(ids, CancelStatus.UNKNOWN)
    assert await store.run_now(ids) == dict.fromkeys(ids, ActionStatus.UNKNOWN)
    for look in (store.get_result, store.get_payload):
        with pytest.raises(TaskNotFoundError):
            await look(ids[0])


async def test_a_committed_batch_is_visible_before_it_is_released(build: Build) -> None:
    ids = await committed(build)
    assert await build.states(ids) == dict.fromkeys(ids, State.READY)
    assert [row.id for row in await build.store.list_tasks(TaskFilter(states=(State.READY,)))] == ids[::-1]
    [stats] = await build.store.get_queue_stats()
    assert (stats.ready, stats.oldest_ready_at) == (3, START)
    assert await build.store.get_payload(ids[0]) == (b'{"n":1}', "json/1")
    assert await build.store.get_result(ids[0]) is None
    assert [entry.kind for entry in await build.store.get_history(ids[0])] == ["enqueued"]


async def test_a_committed_batch_is_released_in_parts_and_runs_in_order(build: Build) -> None:
    ids = await committed(build, 10)
    assert [await build.store.release_batches(4) for _ in range(4)] == [4, 4, 2, 0]
    assert ids_of(await build.claim(await build.worker())) == ids


async def test_tasks_of_a_batch_that_are_due_later_are_scheduled(build: Build, clock: SettableClock) -> None:
    ids = await committed(build, delay_seconds=60.0)
    assert await build.states(ids) == dict.fromkeys(ids, State.SCHEDULED)
    assert (await build.store.get_queue_stats())[0].scheduled == 3
    await moved(build.store)
    assert await build.states(ids) == dict.fromkeys(ids, State.SCHEDULED)
    clock.advance(60)
    assert await build.store.promote() == 3
    assert ids_of(await build.claim(await build.worker())) == ids


async def test_a_part_sent_twice_is_stored_once(build: Build) -> None:
    part = [build.new() for _ in range(3)]
    await build.store.enqueue_part("s", part)
    await build.store.enqueue_part("s", part)
    assert await build.store.commit_batch("s") == {}
    assert await moved(build.store) == 3


async def test_tasks_resent_in_another_batch_are_stored_once(build: Build) -> None:
    part = [build.new() for _ in range(3)]
    await build.store.enqueue_part("first", part)
    await build.store.enqueue_part("second", part)
    assert await build.store.commit_batch("second") == {}
    await build.store.drop_batch("first")
    assert await moved(build.store) == 3
    assert len(await build.states([task.id for task in part])) == 3


async def test_committing_twice_is_harmless_and_returns_the_same_result(build: Build) -> None:
    holder = await build.one(key="k")
    [loser] = await batched(build, 1, key="k")
    await batched(build, 2)
    first = await build.store.commit_batch("s")
    assert first == {loser: holder}
    assert await build.store.commit_batch("s") == first
    assert await moved(build.store) == 2
    assert await build.store.commit_batch("s") == first
    assert await moved(build.store) == 0


async def test_keys_are_taken_at_the_commit(build: Build) -> None:
    [mine] = await batched(build, 1, key="k")
    outside = await build.one(key="k")
    assert await build.store.commit_batch("s") == {mine: outside}
    assert await build.states([mine, outside]) == {outside: State.READY}


async def test_within_a_batch_the_first_task_with_a_key_gets_it(build: Build) -> None:
    new = [build.new(key=key) for key in ("a", "b", "a", "a", "b")]
    await build.store.enqueue_part("s", new[:3])
    await build.store.enqueue_part("s", new[3:])
    ids = [task.id for task in new]
    assert await build.store.commit_batch("s") == {ids[2]: ids[0], ids[3]: ids[0], ids[4]: ids[1]}
    assert await moved(build.store) == 2
    await build.sound()


async def test_the_first_task_with_a_key_is_the_first_given_not_the_smallest_id(build: Build) -> None:
    small, large = build.new(unique="u"), build.new(unique="u")
    await build.store.enqueue_part("s", [large, small])
    assert await build.store.commit_batch("s") == {small.id: large.id}


async def test_a_conflict_drops_the_batch_and_a_repeated_commit_raises_it_again(build: Build) -> None:
    holder = await build.one(key="k", fingerprint=b"other")
    ids = await batched(build, 3)
    await batched(build, 1, key="free")
    await batched(build, 1, key="k")
    for _ in range(2):
        with pytest.raises(KeyConflictError) as caught:
            await build.store.commit_batch("s")
        assert caught.value.facts["task_id"] == holder
    assert await build.states(ids) == {}
    assert await build.store.release_batches() == 0
    assert (await build.store.enqueue([build.new(key="free")]))[0].created
    await build.sound()


async def test_a_key_taken_by_a_committed_batch_is_taken(build: Build) -> None:
    [mine] = await batched(build, 1, key="k", unique="u")
    await build.store.commit_batch("s")
    answers = await build.store.enqueue([build.new(key="k"), build.new(unique="u")])
    assert [answer.task_id for answer in answers] == [mine, mine]


async def test_a_dropped_batch_leaves_nothing(build: Build) -> None:
    ids = await batched(build, key="k")
    await build.store.drop_batch("s")
    await build.store.drop_batch("s")
    with pytest.raises(NotAcceptedError):
        await build.store.commit_batch("s")
    assert await build.states(ids) == {}
    assert (await build.store.enqueue([build.new(id=ids[0])]))[0].created


async def test_dropping_a_committed_batch_does_nothing(build: Build) -> None:
    ids = await committed(build)
    await build.store.drop_batch("s")
    assert await moved(build.store) == len(ids)


async def test_an_unknown_batch_cannot_be_committed(store: Store) -> None:
    with pytest.raises(NotAcceptedError):
        await store.commit_batch("nobody")


async def test_no_part_can_be_added_to_a_committed_batch(build: Build) -> None:
    await committed(build)
    with pytest.raises(NotAcceptedError):
        await batched(build)


async def test_actions_apply_to_tasks_of_a_committed_batch_before_its_release(build: Build) -> None:
    cancelled, urgent, plain = await committed(build)
    assert await build.store.cancel([cancelled]) == {cancelled: CancelStatus.CANCELLED}
    assert await build.store.reprioritise([urgent], Priority.INTERACTIVE) == {urgent: ActionStatus.DONE}
    [late] = await batched(build, 1, batch="t", delay_seconds=600.0)
    await build.store.commit_batch("t")
    assert await build.store.run_now([late]) == {late: ActionStatus.DONE}
    assert await moved(build.store) == 3
    assert ids_of(await build.claim(await build.worker())) == [urgent, plain, late]
    assert await build.state(cancelled) is State.CANCELLED
    await build.sound()


async def test_an_uncommitted_batch_is_deleted_after_a_day(build: Build, clock: SettableClock) -> None:
    ids = await batched(build, 5)
    clock.advance(DAY - 1)
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY) == 0
    clock.advance(2)
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY, limit=2) == 2
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY) == 4
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY) == 0
    with pytest.raises(NotAcceptedError):
        await build.store.commit_batch("s")
    assert (await build.store.enqueue([build.new(id=ids[0])]))[0].created


async def test_a_committed_batch_is_never_deleted_before_its_release(
    build: Build, clock: SettableClock
) -> None:
    await committed(build, 5)
    clock.advance(2 * DAY)
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY) == 0
    assert await moved(build.store) == 5
    assert await expire(build.store, finished_seconds=DAY, dead_seconds=DAY) == 1


async def enqueue_many_parts(build: Build, new: list[NewTask]) -> None:
    for start in range(0, len(new), 5_000):
        await build.store.enqueue_part("s", new[start : start + 5_000])


@pytest.mark.parametrize(
    ("count", "seconds"), [(12_000, 10.0), pytest.param(70_000, 30.0, marks=pytest.mark.slow)]
)
async def test_other_writers_do_not_wait_long_for_a_bulk_enqueue(
    build: Build, twin: Store, clock: SettableClock, count: int, seconds: float
) -> None:
    worker = await build.worker()
    new = [build.new(key=f"k{n // 2}" if n % 100 < 2 else None) for n in range(count)]
    longest = 0.0
    over = False

    async def keep_working() -> None:
        nonlocal longest
        other = Build(twin, clock)
        while not over:
            for call in (
                lambda: other.store.enqueue([other.new(id=build.id(), queue="beside")]),
                lambda: other.claim(worker, 1, queues=("beside",)),
            ):
                before = time.monotonic()
                await call()
                longest = max(longest, time.monotonic() - before)
            await asyncio.sleep(0.005)

    beside = asyncio.create_task(keep_working())
    began = time.monotonic()
    await enqueue_many_parts(build, new)
    losers = await build.store.commit_batch("s")
    took = time.monotonic() - began
    assert await moved(build.store) == count - count // 100
    over = True
    await beside
    assert took < seconds
    assert longest < 1.0
    # Two adjacent tasks in each hundred share a key: the second got the id of the first.
    assert losers == {new[n + 1].id: new[n].id for n in range(0, count, 100)}
    kept = [task.id for task in new if task.id not in losers]
    claimed: list[str] = []
    while part := await build.claim(worker, 5_000, queues=("main",)):
        claimed += ids_of(part)
    assert claimed == kept


@pytest.mark.parametrize("batch_id", ["a\0b", "a\ud800b"])
async def test_a_batch_may_have_any_id(build: Build, batch_id: str) -> None:
    with pytest.raises(WrongStateError):
        await build.store.commit_batch(batch_id)
    await build.store.drop_batch(batch_id)
    new = build.new()
    await build.store.enqueue_part(batch_id, [new])
    assert await build.store.commit_batch(batch_id) == {}
    assert set(await build.store.read_tasks([new.id])) == {new.id}
