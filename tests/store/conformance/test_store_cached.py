"""The content cache: one task does the work, the others wait for its result, and no end of it strands them."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.outcome import Cancelled, Fence, Suspended
from tidegate.domain.states import State
from tidegate.domain.step import CACHED_BYTES, DoubtState, OnDoubt, StepState
from tidegate.store.common.cached import ELECTION_SECONDS
from tidegate.store.history_rows import EventKind
from tidegate.store.protocol import Store
from tidegate.store.step_rows import (
    OTHER_TENANT,
    BeginStatus,
    BegunStep,
    CacheTerms,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
)

DAY = 86_400.0
BEGUN = BegunStep(BeginStatus.BEGUN)
FOUND = BegunStep(BeginStatus.DONE, b'"picture"', "json", is_cached=True)
REPLAYED = FOUND._replace(is_cached=False)
DONE = EndedStep(EndStatus.DONE)


def terms(digest: str = "cat", **changes: Any) -> CacheTerms:
    given: dict[str, Any] = {"tenant": "", "is_shared": False, "seconds": DAY} | changes
    return CacheTerms(digest, **given)


def waits_for(fence: Fence) -> BegunStep:
    return BegunStep(BeginStatus.WAIT, leader_id=fence.task_id)


async def begin(
    store: Store,
    fence: Fence,
    key: str = "k",
    attempt: int = 1,
    *,
    on_doubt: OnDoubt = OnDoubt.REPEAT,
    **cache: Any,
) -> BegunStep:
    return await store.begin_cached_step(
        StepBegin(fence, key, attempt, "draw", on_doubt, cache=terms(**cache))
    )


async def end(
    store: Store, fence: Fence, data: bytes = b'"picture"', key: str = "k", attempt: int = 1, **cache: Any
) -> EndedStep:
    return await store.end_cached_step(
        StepEnd(fence, key, attempt, EndStatus.DONE, data, "json", cache=terms(**cache))
    )


async def fail(store: Store, fence: Fence, status: EndStatus = EndStatus.FAILED) -> None:
    await store.end_steps([StepEnd(fence, "k", 1, status, cause="it failed")])


async def suspend(build: Build, *fences: Fence, digest: str = "cat", seconds: float = DAY) -> None:
    waits = ((digest, seconds),)
    await build.done(
        *(Suspended(fence, None, "waits for a step", -600.0, cache_waits=waits) for fence in fences)
    )


async def followers(build: Build, count: int) -> list[Fence]:
    """Return tasks that are suspended for the work that another task does."""
    tasks = [task.fence for task in await build.running(count, queue="followers")]
    for fence in tasks:
        assert (await begin(build.store, fence)).status is BeginStatus.WAIT
    await suspend(build, *tasks)
    return tasks


async def woken(build: Build) -> list[Fence]:
    """Promote, and claim the followers that wake."""
    await build.store.promote()
    return [task.fence for task in await build.claim(await build.worker(), queues=("followers",))]


async def counts(build: Build) -> dict[str, int]:
    """Return how many steps with a cache ended in each way."""
    events = (await build.store.get_totals()).events
    return {event.reason: event.events for event in events if event.kind is EventKind.CACHE}


async def leader(build: Build) -> Fence:
    """Return a task that does the work."""
    fence = (await build.run()).fence
    assert await begin(build.store, fence) == BEGUN
    return fence


# --- results ---------------------------------------------------------------------------------------------


async def test_a_later_task_gets_the_result_and_its_step_is_done(build: Build) -> None:
    first = await leader(build)
    assert await end(build.store, first) == DONE
    second = (await build.run()).fence
    assert await begin(build.store, second) == FOUND
    [step] = await build.store.read_steps(second.task_id)
    assert (step.state, step.data, step.cached_from) == (StepState.DONE, b'"picture"', first.task_id)
    [own] = await build.store.read_steps(first.task_id)
    assert own.cached_from == ""
    assert await counts(build) == {"miss": 1, "hit": 1}
    await build.store.compact_history()
    assert await counts(build) == {"miss": 1, "hit": 1}


async def test_a_result_that_was_got_stays_with_the_task_when_the_cache_has_forgotten_it(
    build: Build, clock: SettableClock
) -> None:
    await end(build.store, await leader(build))
    second = (await build.run()).fence
    await begin(build.store, second)
    clock.advance(2 * DAY)
    assert await expire(build.store, finished_seconds=inf, dead_seconds=inf) >= 1
    assert await begin(build.store, second, attempt=2) == REPLAYED


async def test_a_resent_begin_and_a_resent_end_change_nothing(build: Build) -> None:
    first = await leader(build)
    assert await begin(build.store, first) == BEGUN
    for _ in range(2):
        assert await end(build.store, first) == DONE
    second = (await build.run()).fence
    assert await begin(build.store, second) == FOUND
    assert await begin(build.store, second) == REPLAYED


async def test_other_content_is_other_work(build: Build) -> None:
    await end(build.store, await leader(build))
    assert await begin(build.store, (await build.run()).fence, digest="dog") == BEGUN


@pytest.mark.parametrize("age", [59.0, 60.0])
async def test_a_step_gets_no_result_that_is_older_than_it_allows(
    build: Build, clock: SettableClock, age: float
) -> None:
    await end(build.store, await leader(build))
    clock.advance(age)
    answer = await begin(build.store, (await build.run()).fence, seconds=60.0)
    assert answer == (FOUND if age < 60.0 else BEGUN)


@pytest.mark.parametrize("age", [59.0, 60.0])
async def test_a_result_does_not_outlast_the_time_of_the_step_that_made_it(
    build: Build, clock: SettableClock, age: float
) -> None:
    await end(build.store, await leader(build), seconds=60.0)
    clock.advance(age)
    answer = await begin(build.store, (await build.run()).fence)
    assert answer == (FOUND if age < 60.0 else BEGUN)


async def test_the_work_is_done_again_while_steps_that_allow_older_results_get_the_old_one(
    build: Build, clock: SettableClock
) -> None:
    await end(build.store, await leader(build))
    clock.advance(60)
    second = (await build.run()).fence
    assert await begin(build.store, second, seconds=60.0) == BEGUN
    assert await begin(build.store, (await build.run()).fence) == FOUND
    assert await end(build.store, second, b'"new"', seconds=60.0) == DONE
    assert (await begin(build.store, (await build.run()).fence)).data == b'"new"'


async def test_a_failure_is_not_cached(build: Build) -> None:
    first = await leader(build)
    await fail(build.store, first)
    assert await begin(build.store, (await build.run()).fence) == BEGUN


async def test_a_step_that_failed_before_gets_a_result_that_came_since(build: Build) -> None:
    first = await leader(build)
    await fail(build.store, first)
    second = (await build.run()).fence
    await begin(build.store, second)
    await end(build.store, second)
    assert await begin(build.store, first, attempt=2) == FOUND


async def test_a_result_that_is_too_large_is_not_cached_and_nobody_waits_for_the_next(build: Build) -> None:
    first = await leader(build)
    waiting = await followers(build, 2)
    await end(build.store, first, b"x" * (CACHED_BYTES + 1))
    awake = await woken(build)
    assert sorted(awake) == sorted((fence.task_id, 2) for fence in waiting)
    assert [await begin(build.store, fence) for fence in awake] == [BEGUN, BEGUN]


async def test_the_first_result_stays_until_it_is_too_old(build: Build) -> None:
    first, second = await leader(build), (await build.run()).fence
    assert await begin(build.store, second, may_wait=False) == BEGUN
    await end(build.store, second)
    assert await end(build.store, first, b'"other"') == DONE
    assert await begin(build.store, (await build.run()).fence) == FOUND


async def test_a_step_of_a_lost_run_is_not_begun(build: Build) -> None:
    fence = (await build.run()).fence
    for lost in (Fence(fence.task_id, 7), Fence("no id", 1)):
        assert (await begin(build.store, lost)).status is BeginStatus.FENCED
        await end(build.store, await leader(build), digest="dog")
        assert (await begin(build.store, lost, digest="dog")).status is BeginStatus.FENCED
    assert await build.store.read_steps(fence.task_id) == []


# --- tenants ---------------------------------------------------------------------------------------------


async def test_a_tenant_never_gets_the_result_of_another_even_with_the_same_digest(build: Build) -> None:
    first, second = (await build.run(tenant="a")).fence, (await build.run(tenant="b")).fence
    assert await begin(build.store, first, tenant="a") == BEGUN
    assert await begin(build.store, second, tenant="b") == BEGUN
    await end(build.store, first, tenant="a")
    assert await begin(build.store, (await build.run(tenant="b")).fence, tenant="b") == BEGUN
    await end(build.store, second, b'"mine"', tenant="b")
    assert await begin(build.store, (await build.run(tenant="a")).fence, tenant="a") == FOUND


async def test_a_shared_result_of_another_tenant_does_not_name_its_task(build: Build) -> None:
    first, second, third = [(await build.run(tenant=each)).fence for each in "abb"]
    await begin(build.store, first, tenant="a", is_shared=True)
    assert (await begin(build.store, second, tenant="b", is_shared=True)) == BegunStep(BeginStatus.WAIT)
    await end(build.store, first, tenant="a", is_shared=True)
    assert await begin(build.store, third, tenant="b", is_shared=True) == FOUND
    [step] = await build.store.read_steps(third.task_id)
    assert step.cached_from == OTHER_TENANT


# --- work in flight --------------------------------------------------------------------------------------


async def test_of_many_tasks_that_begin_at_once_one_does_the_work(build: Build) -> None:
    tasks = [task.fence for task in await build.running(30)]
    answers = await asyncio.gather(*(begin(build.store, fence) for fence in tasks))
    [place] = [place for place, answer in enumerate(answers) if answer == BEGUN]
    others = [answer for answer in answers if answer != BEGUN]
    assert others == [waits_for(tasks[place])] * 29


async def test_waiting_tasks_wake_when_the_result_is_there(build: Build) -> None:
    first = await leader(build)
    waiting = await followers(build, 3)
    assert await woken(build) == []
    await end(build.store, first)
    awake = await woken(build)
    assert sorted(fence.task_id for fence in awake) == sorted(fence.task_id for fence in waiting)
    assert [await begin(build.store, fence) for fence in awake] == [FOUND] * 3
    assert await counts(build) == {"miss": 1, "shared": 3}
    await build.sound()


async def test_a_result_that_came_before_the_suspension_wakes_the_task(build: Build) -> None:
    first, second = await leader(build), (await build.run(queue="followers")).fence
    await begin(build.store, second)
    await end(build.store, first)
    await suspend(build, second)
    [awake] = await woken(build)
    assert await begin(build.store, awake) == FOUND


async def test_a_result_and_suspensions_at_the_same_moment_strand_nobody(build: Build) -> None:
    first = await leader(build)
    tasks = [task.fence for task in await build.running(30, queue="followers")]
    for fence in tasks:
        await begin(build.store, fence)
    waits = (("cat", DAY),)
    await asyncio.gather(
        *(build.store.finish([Suspended(fence, None, "waits", cache_waits=waits)]) for fence in tasks),
        end(build.store, first),
        *(build.store.promote() for _ in range(5)),
    )
    await build.store.promote()
    assert set((await build.states([fence.task_id for fence in tasks])).values()) == {State.READY}


ENDS = ["fails", "is in doubt", "dies", "is cancelled", "is retried"]


async def end_without_result(build: Build, fence: Fence, how: str) -> None:
    outcomes = {
        "dies": dead(fence), "is cancelled": Cancelled(fence), "is retried": retrying(fence, delay=DAY)
    }  # fmt: skip
    if how in outcomes:
        await build.done(outcomes[how])
    else:
        await fail(build.store, fence, EndStatus.FAILED if how == "fails" else EndStatus.IN_DOUBT)


@pytest.mark.parametrize("how", ENDS)
async def test_if_the_work_ends_without_a_result_one_waiting_task_does_it_for_all(
    build: Build, how: str
) -> None:
    first = await leader(build)
    await followers(build, 3)
    await end_without_result(build, first, how)
    [second] = await woken(build)
    assert await woken(build) == []
    assert await begin(build.store, second) == BEGUN
    assert await woken(build) == []
    await end(build.store, second)
    assert [await begin(build.store, fence) for fence in await woken(build)] == [FOUND, FOUND]


async def test_a_task_that_is_killed_during_the_work_strands_nobody(
    build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=30.0)
    [task] = await build.running(worker=worker)
    await begin(build.store, task.fence)
    await followers(build, 3)
    clock.advance(31)
    assert await woken(build) == []  # its lease has run out, but nobody has noticed: it may still do the work
    await reap(build, worker)
    [second] = await woken(build)
    assert await begin(build.store, second) == BEGUN
    assert await woken(build) == []


async def reap(build: Build, worker: str) -> None:
    """Retire a worker whose lease has run out, and requeue its tasks for runs that come later."""
    assert await build.store.retire_worker(worker, why="lease ran out", is_loss=True, only_if_expired=True)
    for orphan in await build.store.list_orphans():
        await build.done(retrying(orphan.fence, delay=DAY))


async def test_if_the_chosen_task_ends_before_it_begins_the_work_another_one_is_woken(build: Build) -> None:
    first = await leader(build)
    await followers(build, 2)
    await fail(build.store, first)
    [second] = await woken(build)
    await build.done(dead(second))
    [third] = await woken(build)
    assert await begin(build.store, third) == BEGUN


async def test_if_the_chosen_task_does_not_come_to_the_work_another_one_is_woken(
    build: Build, clock: SettableClock
) -> None:
    first = await leader(build)
    await followers(build, 2)
    await fail(build.store, first)
    [second] = await woken(build)
    clock.advance(ELECTION_SECONDS - 1)
    assert await woken(build) == []
    clock.advance(1)
    [third] = await woken(build)
    assert await begin(build.store, third) == BEGUN
    assert await begin(build.store, second) == waits_for(third)


async def test_a_new_task_does_the_work_before_the_chosen_one_which_then_waits(build: Build) -> None:
    first = await leader(build)
    await followers(build, 2)
    await fail(build.store, first)
    [second] = await woken(build)
    third = await leader(build)
    assert await begin(build.store, second) == waits_for(third)


async def test_maintenance_of_several_machines_wakes_one_task_for_the_work(build: Build) -> None:
    first = await leader(build)
    waiting = await followers(build, 10)
    await fail(build.store, first)
    await asyncio.gather(*(build.store.promote() for _ in range(10)))
    states = await build.states([fence.task_id for fence in waiting])
    assert sorted(states.values()).count(State.READY) == 1


async def test_a_wait_of_a_task_that_was_cancelled_is_removed(build: Build) -> None:
    await leader(build)
    [fence] = await followers(build, 1)
    await build.store.cancel([fence.task_id])
    assert await expire(build.store, finished_seconds=inf, dead_seconds=inf) >= 1
    assert await expire(build.store, finished_seconds=inf, dead_seconds=inf) == 0


async def test_a_late_result_wakes_the_waiting_tasks_and_the_next_leader_keeps_its_own(build: Build) -> None:
    first = await leader(build)
    await followers(build, 2)
    await build.done(retrying(first, delay=DAY))
    [second] = await woken(build)
    assert await begin(build.store, second) == BEGUN
    assert await end(build.store, first) == DONE  # the answer of the lost run comes late
    [third] = await woken(build)
    assert await begin(build.store, third) == FOUND
    assert await end(build.store, second, b'"other"') == DONE
    [step] = await build.store.read_steps(second.task_id)
    assert step.data == b'"other"'
    assert await begin(build.store, (await build.run()).fence) == FOUND


async def test_a_late_result_of_a_task_that_was_forgotten_is_not_cached(build: Build) -> None:
    first = await leader(build)
    await build.done(dead(first))
    await build.store.forget_tasks([first.task_id])
    assert (await end(build.store, first)).status is EndStatus.GONE
    assert await begin(build.store, (await build.run()).fence) == BEGUN


async def test_a_result_that_is_forgotten_beside_waiting_tasks_strands_nobody(build: Build) -> None:
    first = await leader(build)
    await end(build.store, first)
    await build.done(succeeded(first))
    task = (await build.run(queue="followers")).fence
    await suspend(build, task)
    await build.store.forget_tasks([first.task_id])
    [awake] = await woken(build)
    assert await begin(build.store, awake) == BEGUN


async def test_a_step_that_may_not_wait_does_the_work_too(build: Build) -> None:
    await leader(build)
    assert await begin(build.store, (await build.run()).fence, may_wait=False) == BEGUN


async def test_a_step_in_the_same_run_waits_for_an_equal_one(build: Build) -> None:
    fence = await leader(build)
    assert await begin(build.store, fence, key="other") == waits_for(fence)
    await end(build.store, fence)
    assert await begin(build.store, fence, key="other") == FOUND


async def test_a_task_wakes_for_the_first_of_two_results(build: Build) -> None:
    first, second = await leader(build), (await build.run()).fence
    await begin(build.store, second, digest="dog")
    task = (await build.run(queue="followers")).fence
    await build.done(Suspended(task, None, "waits", cache_waits=(("cat", DAY), ("dog", DAY))))
    await end(build.store, second, digest="dog")
    [awake] = await woken(build)
    await suspend(build, awake)  # it got that result, and waits for the other one
    assert await woken(build) == []
    await end(build.store, first)
    assert len(await woken(build)) == 1


async def test_a_result_that_is_too_old_for_the_waiting_task_does_not_wake_it(
    build: Build, clock: SettableClock
) -> None:
    await end(build.store, await leader(build))
    clock.advance(120)
    second, third = (await build.run()).fence, (await build.run(queue="followers")).fence
    assert await begin(build.store, second, seconds=60.0) == BEGUN
    assert await begin(build.store, third, seconds=60.0) == waits_for(second)
    await suspend(build, third, seconds=60.0)
    assert await woken(build) == []
    await end(build.store, second, b'"new"', seconds=60.0)
    [awake] = await woken(build)
    assert (await begin(build.store, awake, seconds=60.0)).data == b'"new"'


# --- doubts ----------------------------------------------------------------------------------------------


async def in_doubt(build: Build) -> Fence:
    """Return the second run of a task whose first one ended during the work, without an answer."""
    first = await leader(build)
    await build.done(retrying(first, delay=0.0))
    await build.store.promote()
    [again] = await build.claim(await build.worker())
    return again.fence


async def test_a_call_in_doubt_is_not_made_again_if_another_task_has_the_result(build: Build) -> None:
    fence = await in_doubt(build)
    other = await leader(build)
    assert await begin(build.store, fence) == waits_for(other)
    await end(build.store, other)
    assert await begin(build.store, fence) == FOUND
    [step] = await build.store.read_steps(fence.task_id)
    assert (step.state, step.cached_from) == (StepState.DONE, other.task_id)
    [doubt] = await build.store.list_doubts(state=None, task_id=fence.task_id)
    assert doubt.state is DoubtState.RECONCILED


async def test_a_doubt_that_a_person_decides_is_not_answered_from_the_cache(build: Build) -> None:
    fence = await in_doubt(build)
    await end(build.store, await leader(build))
    assert (await begin(build.store, fence, on_doubt=OnDoubt.ASK)).status is BeginStatus.IN_DOUBT
