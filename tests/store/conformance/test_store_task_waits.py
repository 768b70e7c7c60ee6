"""Tasks that wait for other tasks: they wake when none of those can still run, whatever ends last and when."""

from __future__ import annotations

import asyncio
from math import inf

import pytest
from store_build import Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.outcome import Fence, Outcome, Suspended
from tidegate.domain.states import State

DAY = 86_400.0


async def waiting_parent(
    build: Build, *children: str, delay: float | None = None, queue: str = "parents"
) -> Fence:
    """Return a task that is suspended until these tasks have ended."""
    fence = (await build.run(queue=queue)).fence
    await build.done(Suspended(fence, delay, "waits for tasks", -600.0, child_ids=children))
    return fence


async def is_woken(build: Build, fence: Fence) -> bool:
    """Promote, and return whether the task left its suspension."""
    await build.store.promote()
    return await build.state(fence.task_id) is State.READY


def ends(fence: Fence) -> dict[str, Outcome]:
    return {"succeeded": succeeded(fence), "dead": dead(fence)}


@pytest.mark.parametrize("end", ["succeeded", "dead"])
async def test_a_task_wakes_when_the_last_task_that_it_waits_for_ends(
    build: Build, clock: SettableClock, end: str
) -> None:
    first, second = await build.running(2)
    parent = await waiting_parent(build, first.fence.task_id, second.fence.task_id)
    assert not await is_woken(build, parent)
    await build.done(succeeded(first.fence))
    assert not await is_woken(build, parent)
    clock.advance(DAY)
    await build.done(ends(second.fence)[end])
    assert await is_woken(build, parent)
    await build.sound()


async def test_a_task_that_is_cancelled_has_ended(build: Build) -> None:
    child = await build.one()
    parent = await waiting_parent(build, child)
    await build.store.cancel([child])
    assert await is_woken(build, parent)


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.RETRYING])
async def test_a_task_that_will_run_has_not_ended(build: Build, state: State) -> None:
    child = await build.in_state(state)
    assert not await is_woken(build, await waiting_parent(build, child))


async def test_a_task_that_ended_before_the_wait_wakes_the_waiting_one(build: Build) -> None:
    child = await build.run()
    await build.done(succeeded(child.fence))
    assert await is_woken(build, await waiting_parent(build, child.fence.task_id))


async def test_a_task_that_retention_has_removed_counts_as_ended(build: Build, clock: SettableClock) -> None:
    child = await build.run()
    await build.done(succeeded(child.fence))
    clock.advance(1)
    assert await expire(build.store, finished_seconds=0.0, dead_seconds=inf)
    assert await is_woken(build, await waiting_parent(build, child.fence.task_id))


@pytest.mark.parametrize("child", ["no id", "00000000-0000-7000-8000-000000000000"])
async def test_a_task_that_does_not_exist_does_not_hold_the_waiting_one_for_ever(
    build: Build, child: str
) -> None:
    other = await build.run()
    parent = await waiting_parent(build, child, other.fence.task_id)
    assert not await is_woken(build, parent)
    await build.done(succeeded(other.fence))
    assert await is_woken(build, parent)


async def test_a_redriven_task_is_waited_for_again(build: Build) -> None:
    child = await build.in_state(State.DEAD)
    await build.store.redrive([child])
    assert not await is_woken(build, await waiting_parent(build, child))


async def test_tasks_that_end_while_their_parents_are_suspended_wake_them_all(build: Build) -> None:
    parents = await build.running(30, queue="parents")
    children = await build.running(60)
    of_parent = [
        tuple(child.fence.task_id for child in children[2 * place : 2 * place + 2]) for place in range(30)
    ]
    await asyncio.gather(
        *(
            build.store.finish([Suspended(parent.fence, None, "waits", -600.0, child_ids=mine)])
            for parent, mine in zip(parents, of_parent, strict=True)
        ),
        *(build.store.finish([succeeded(child.fence)]) for child in children),
        *(build.store.promote() for _ in range(10)),
    )
    await build.store.promote()
    states = await build.states([parent.fence.task_id for parent in parents])
    assert set(states.values()) == {State.READY}


async def test_two_maintenance_jobs_wake_a_task_whose_two_last_tasks_end_together(build: Build) -> None:
    for number in range(10):
        first, second = await build.running(2)
        ids = first.fence.task_id, second.fence.task_id
        parent = await waiting_parent(build, *ids, queue=f"parents-{number}")
        await asyncio.gather(
            build.store.finish([succeeded(first.fence)]),
            build.store.promote(),
            build.store.finish([succeeded(second.fence)]),
            build.store.promote(),
        )
        assert await is_woken(build, parent)


async def test_a_task_that_wakes_for_another_reason_waits_for_the_tasks_of_its_next_suspension(
    build: Build, clock: SettableClock
) -> None:
    slow, other = await build.running(2)
    parent = await waiting_parent(build, slow.fence.task_id, delay=60.0)
    clock.advance(60)
    assert await is_woken(build, parent)
    [again] = await build.claim(await build.worker(), queues=("parents",))
    await build.done(Suspended(again.fence, None, "waits", child_ids=(other.fence.task_id,)))
    await build.done(succeeded(slow.fence))
    assert not await is_woken(build, again.fence)
    await build.done(succeeded(other.fence))
    assert await is_woken(build, again.fence)


async def test_a_failure_that_is_retried_does_not_wake_the_waiting_task(build: Build) -> None:
    child = await build.run()
    parent = await waiting_parent(build, child.fence.task_id)
    await build.done(retrying(child.fence, delay=600.0))
    assert not await is_woken(build, parent)


@pytest.mark.parametrize("end", ["cancelled", "dead", "succeeded"])
async def test_what_an_ended_task_waited_for_is_swept_and_live_tasks_keep_theirs(
    build: Build, end: str
) -> None:
    running = await build.running(2)
    children = [task.fence.task_id for task in running]
    ended = await waiting_parent(build, *children, delay=0.0, queue="ended")
    live = await waiting_parent(build, *children)
    if end == "cancelled":
        await build.store.cancel([ended.task_id])
    else:
        await build.store.promote()
        [again] = await build.claim(await build.worker(), queues=("ended",))
        await build.done(ends(again.fence)[end])
    assert await build.store.delete_expired(ticks_seconds=DAY) == 2
    assert await build.store.delete_expired(ticks_seconds=DAY) == 0
    await build.done(*(succeeded(task.fence) for task in running))
    assert await is_woken(build, live)
