"""Keys and unique names: one task for each, for the time it is kept."""

from __future__ import annotations

import asyncio

import pytest
from store_back_ends import Clients, opened
from store_build import Build, SettableClock, dead, ids_of, retrying, succeeded

from tidegate.domain.states import FINAL, State
from tidegate.errors import KeyConflictError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, EnqueueResult, TaskFilter

DAY = 86_400.0
LIVE = [State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING]


async def enqueue(build: Build, **changes: object) -> EnqueueResult:
    return (await build.store.enqueue([build.new(**changes)]))[0]


@pytest.mark.parametrize("state", [*LIVE, *sorted(FINAL)])
async def test_a_key_returns_its_first_task_in_any_state(build: Build, state: State) -> None:
    first = await build.in_state(state, key="k")
    assert await enqueue(build, key="k") == EnqueueResult(first, created=False)


async def test_a_key_is_free_again_after_its_time(build: Build, clock: SettableClock) -> None:
    first = await build.one(key="k", key_seconds=7 * DAY)
    clock.advance(7 * DAY - 1)
    assert (await enqueue(build, key="k")).task_id == first
    clock.advance(1)
    second = await enqueue(build, key="k")
    assert second.created
    assert (await enqueue(build, key="k")).task_id == second.task_id


async def test_a_key_belongs_to_its_tenant(build: Build) -> None:
    answers = [await enqueue(build, key="k", tenant=tenant) for tenant in ("", "a", "b")]
    assert all(answer.created for answer in answers)


async def test_a_key_with_other_arguments_is_an_error_and_nothing_is_stored(build: Build) -> None:
    first = await build.one(key="k", fingerprint=b"one")
    with pytest.raises(KeyConflictError) as caught:
        await build.store.enqueue(
            [build.new(), build.new(key="k", fingerprint=b"two"), build.new(key="other")]
        )
    assert caught.value.facts["task_id"] == first
    assert [row.id for row in await build.store.list_tasks(TaskFilter())] == [first]
    assert (await enqueue(build, key="other")).created


async def test_within_one_call_the_first_task_with_a_key_gets_it(build: Build) -> None:
    new = [build.new(key="k"), build.new(), build.new(key="k"), build.new(key="l"), build.new(key="k")]
    answers = await build.store.enqueue(new)
    assert [answer.task_id for answer in answers] == [new[0].id, new[1].id, new[0].id, new[3].id, new[0].id]
    assert [answer.created for answer in answers] == [True, True, False, True, False]


async def test_a_conflict_within_one_call_stores_nothing(build: Build) -> None:
    with pytest.raises(KeyConflictError):
        await build.store.enqueue(
            [build.new(key="k", fingerprint=b"1"), build.new(key="k", fingerprint=b"2")]
        )
    assert await build.store.list_tasks(TaskFilter()) == []
    assert (await enqueue(build, key="k", fingerprint=b"3")).created


async def test_two_clients_that_race_for_a_key_get_the_same_task(
    build: Build, clients: Clients, clock: SettableClock
) -> None:
    async with opened(clients) as other:
        builds = [build, Build(other, clock)]
        new = [[builds[n % 2].new(key=f"k{k}") for k in range(20)] for n in range(2)]
        # Each client makes its own ids, which must differ.
        new[1] = [builds[1].new(key=task.key, id=builds[0].id()) for task in new[1]]
        answers = await asyncio.gather(
            *(builds[n].store.enqueue([new[n][k]]) for k in range(20) for n in range(2))
        )
    for mine, theirs in zip(answers[::2], answers[1::2], strict=True):
        assert mine[0].task_id == theirs[0].task_id
        assert [mine[0].created, theirs[0].created].count(True) == 1
    assert len(await build.store.list_tasks(TaskFilter(), limit=100)) == 20


@pytest.mark.parametrize("state", LIVE)
async def test_a_unique_name_is_taken_until_the_task_is_final(build: Build, state: State) -> None:
    first = await build.in_state(state, unique="u")
    assert await enqueue(build, unique="u") == EnqueueResult(first, created=False)
    assert (await enqueue(build, unique="u", fingerprint=b"another")).task_id == first


@pytest.mark.parametrize("state", sorted(FINAL))
async def test_a_unique_name_is_free_once_the_task_is_final(build: Build, state: State) -> None:
    await build.in_state(state, unique="u")
    second = await enqueue(build, unique="u")
    assert second.created
    assert (await enqueue(build, unique="u")).task_id == second.task_id


async def test_retries_and_releases_do_not_free_a_unique_name(build: Build, clock: SettableClock) -> None:
    task = await build.run(unique="u")
    await build.done(retrying(task.fence, delay=1.0))
    clock.advance(2)
    await build.store.promote()
    again = (await build.claim(await build.worker()))[0]
    assert (await enqueue(build, unique="u")).task_id == task.fence.task_id
    await build.done(dead(again.fence))
    assert (await enqueue(build, unique="u")).created


async def test_a_running_task_cannot_enqueue_its_own_unique_name(build: Build) -> None:
    task = await build.run(unique="u")
    assert await enqueue(build, unique="u") == EnqueueResult(task.fence.task_id, created=False)
    await build.done(succeeded(task.fence))
    assert (await enqueue(build, unique="u")).created


@pytest.mark.parametrize("state", [State.READY, State.SUCCEEDED])
async def test_a_unique_name_with_a_time_limit_is_free_after_it(
    build: Build, clock: SettableClock, state: State
) -> None:
    first = await build.in_state(state, unique="u", unique_seconds=3600.0)
    clock.advance(3599)
    assert (await enqueue(build, unique="u", unique_seconds=3600.0)).task_id == first
    clock.advance(1)
    assert (await enqueue(build, unique="u", unique_seconds=3600.0)).created


async def test_the_end_of_an_old_task_does_not_free_a_name_that_another_task_has_taken(
    build: Build, clock: SettableClock
) -> None:
    first = await build.run(unique="u")
    await build.store.cancel([first.fence.task_id])
    dead_letter = await build.run(unique="v")
    await build.done(dead(dead_letter.fence))
    second = await enqueue(build, unique="v")
    assert second.created
    assert (await build.store.redrive([dead_letter.fence.task_id])) == {
        dead_letter.fence.task_id: ActionStatus.REFUSED
    }
    await build.store.purge([dead_letter.fence.task_id])
    assert (await enqueue(build, unique="v")).task_id == second.task_id


async def test_a_key_and_a_unique_name_do_not_conflict(build: Build) -> None:
    first = await enqueue(build, key="same")
    assert (await enqueue(build, unique="same")).created
    assert (await enqueue(build, key="same")).task_id == first.task_id


async def test_a_task_refused_for_its_unique_name_does_not_take_its_key(build: Build) -> None:
    holder = await build.one(unique="u")
    assert (await enqueue(build, key="k", unique="u")).task_id == holder
    fresh = await enqueue(build, key="k")
    assert fresh.created


async def test_the_key_of_a_purged_task_is_free(build: Build, store: Store) -> None:
    gone = await build.in_state(State.DEAD, key="k", unique="u", unique_seconds=DAY)
    await store.purge([gone])
    answer = await enqueue(build, key="k", unique="u")
    assert answer.created
    assert await build.states([gone]) == {}


@pytest.mark.parametrize("kind", ["key", "unique"])
async def test_batches_with_the_same_names_in_any_order_get_results_in_their_own_order(
    store: Store, twin: Store, build: Build, kind: str
) -> None:
    names = [f"name {number}" for number in range(40)]
    batches = [[build.new(**{kind: name}) for name in order] for order in (names, names[::-1], names)]
    stores = (store, twin, store)
    answers = await asyncio.gather(*map(lambda one, batch: one.enqueue(batch), stores, batches))
    holders = [
        dict(zip(order, got, strict=True))
        for order, got in zip((names, names[::-1], names), answers, strict=True)
    ]
    for name in names:
        assert len({reported[name].task_id for reported in holders}) == 1
        assert sum(reported[name].created for reported in holders) == 1


async def test_tasks_of_a_batch_are_claimed_in_its_order_independent_of_their_names(build: Build) -> None:
    new = [build.new(key=name) for name in "cadb"]
    await build.store.enqueue(new)
    assert ids_of(await build.claim(await build.worker())) == [task.id for task in new]
