"""Events: sent before, after and while a task begins to wait, each wakes it, and each task gets each event once."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest
from store_build import START, Build, SettableClock, expire, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.outcome import Fence, Suspended
from tidegate.domain.states import State
from tidegate.store.event_rows import EventWait, NewEvent, WaitAnswer, WaitStatus

DAY = 86_400.0


def event(build: Build, name: str = "paid", data: bytes = b"1", **changes: Any) -> NewEvent:
    given = {"tenant": "", "codec_tag": CODEC, "kept_seconds": 7 * DAY} | changes
    return NewEvent(build.id(), name, given.pop("tenant"), data, **given)


def wait(fence: Fence, name: str = "paid", *, key: str = "w:1", **changes: Any) -> EventWait:
    given = {"tenant": "", "timeout_seconds": None} | changes
    return EventWait(fence, key, name, **given)


def suspended(fence: Fence, *keys: str, delay: float | None = None) -> Suspended:
    return Suspended(fence, delay, "waits for an event", -600.0, keys)


RECEIVED = WaitAnswer(WaitStatus.RECEIVED, b"1", CODEC)


async def rerun(build: Build) -> Fence:
    """Promote and claim the one task that is due."""
    assert await build.store.promote() == 1
    [task] = await build.claim(await build.worker())
    return task.fence


async def test_an_event_that_was_sent_before_the_wait_is_received_at_once(build: Build) -> None:
    assert await build.store.send_event(event(build)) == 0
    fence = (await build.run()).fence
    assert await build.store.wait_for_event(wait(fence)) == RECEIVED


async def test_an_event_wakes_a_task_that_is_suspended_for_it(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    assert (await build.store.wait_for_event(wait(fence))).status is WaitStatus.OPEN
    await build.done(suspended(fence, "w:1"))
    clock.advance(DAY)
    assert await build.store.promote() == 0
    assert await build.store.send_event(event(build)) == 1
    again = await rerun(build)
    assert await build.store.wait_for_event(wait(again)) == RECEIVED
    await build.sound()


async def test_an_event_that_comes_between_the_wait_and_the_suspension_wakes_the_task(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.wait_for_event(wait(fence))
    assert await build.store.send_event(event(build)) == 1
    await build.done(suspended(fence, "w:1", delay=DAY))
    assert await build.store.wait_for_event(wait(await rerun(build))) == RECEIVED


async def test_an_event_and_a_suspension_at_the_same_moment_lose_nothing(build: Build) -> None:
    tasks = await build.running(60)
    for task in tasks:
        await build.store.wait_for_event(wait(task.fence, task.fence.task_id))
    await asyncio.gather(
        *(
            call
            for task in tasks
            for call in (
                build.store.finish([suspended(task.fence, "w:1")]),
                build.store.send_event(event(build, task.fence.task_id)),
            )
        )
    )
    assert await build.store.promote() == 60
    states = await build.states([task.fence.task_id for task in tasks])
    assert set(states.values()) == {State.READY}


async def test_an_event_and_a_wait_at_the_same_moment_lose_nothing(build: Build) -> None:
    tasks = await build.running(60)
    names = [task.fence.task_id for task in tasks]
    answers = await asyncio.gather(
        *(
            call
            for task, name in zip(tasks, names, strict=True)
            for call in (
                build.store.wait_for_event(wait(task.fence, name)),
                build.store.send_event(event(build, name)),
            )
        )
    )
    for begun, delivered in zip(answers[::2], answers[1::2], strict=True):
        assert isinstance(begun, WaitAnswer)
        assert (begun.status is WaitStatus.RECEIVED) != bool(delivered)
    for task, name in zip(tasks, names, strict=True):
        assert await build.store.wait_for_event(wait(task.fence, name)) == RECEIVED


async def test_each_waiting_task_receives_the_event(build: Build) -> None:
    tasks = await build.running(3)
    for task in tasks:
        await build.store.wait_for_event(wait(task.fence))
    assert await build.store.send_event(event(build)) == 3


async def test_a_task_receives_each_event_once_the_oldest_first(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    for data in (b"1", b"2"):
        await build.store.send_event(event(build, data=data))
        clock.advance(1)
    received = [await build.store.wait_for_event(wait(fence, key=f"w:{each}")) for each in (1, 2, 3)]
    assert [answer.data for answer in received] == [b"1", b"2", b""]
    assert received[2].status is WaitStatus.OPEN


async def test_of_two_open_waits_of_a_task_the_first_receives_the_event(build: Build) -> None:
    fence = (await build.run()).fence
    for key in ("z", "a"):
        await build.store.wait_for_event(wait(fence, key=key))
    assert await build.store.send_event(event(build)) == 1
    assert (await build.store.wait_for_event(wait(fence, key="z"))) == RECEIVED
    assert (await build.store.wait_for_event(wait(fence, key="a"))).status is WaitStatus.OPEN


async def test_an_event_that_is_sent_again_is_not_received_again(build: Build) -> None:
    fence = (await build.run()).fence
    sent = event(build)
    await build.store.wait_for_event(wait(fence))
    assert await build.store.send_event(sent) == 1
    assert await build.store.send_event(sent) == 0
    await build.store.wait_for_event(wait(fence))
    assert (await build.store.wait_for_event(wait(fence, key="w:2"))).status is WaitStatus.OPEN


async def test_what_a_wait_received_stays_when_the_event_has_expired(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await build.store.send_event(event(build))
    await build.store.wait_for_event(wait(fence))
    clock.advance(8 * DAY)
    assert await expire(build.store, finished_seconds=inf, dead_seconds=inf) >= 1
    assert await build.store.wait_for_event(wait(fence)) == RECEIVED


async def test_an_expired_event_is_not_received(build: Build, clock: SettableClock) -> None:
    await build.store.send_event(event(build))
    clock.advance(7 * DAY)
    fence = (await build.run()).fence
    assert (await build.store.wait_for_event(wait(fence))).status is WaitStatus.OPEN


async def test_a_wait_times_out_and_stays_timed_out(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    begun = await build.store.wait_for_event(wait(fence, timeout_seconds=60.0))
    assert begun == WaitAnswer(WaitStatus.OPEN, left_seconds=60.0)
    clock.advance(20)
    assert (await build.store.wait_for_event(wait(fence, timeout_seconds=60.0))).left_seconds == 40.0
    clock.advance(40)
    assert (await build.store.wait_for_event(wait(fence))).status is WaitStatus.TIMED_OUT
    assert await build.store.send_event(event(build)) == 0
    assert (await build.store.wait_for_event(wait(fence))).status is WaitStatus.TIMED_OUT


async def test_an_event_that_came_before_the_time_out_was_noticed_is_received(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await build.store.wait_for_event(wait(fence, timeout_seconds=60.0))
    clock.advance(61)
    await build.store.send_event(event(build))
    assert await build.store.wait_for_event(wait(fence)) == RECEIVED


async def test_events_of_another_tenant_are_not_received(build: Build) -> None:
    fence = (await build.run(tenant="acme")).fence
    await build.store.send_event(event(build, tenant="other"))
    assert (await build.store.wait_for_event(wait(fence, tenant="acme"))).status is WaitStatus.OPEN
    assert await build.store.send_event(event(build, tenant="other")) == 0
    assert await build.store.send_event(event(build, tenant="acme")) == 1


async def test_a_stale_run_cannot_wait(build: Build) -> None:
    fence = (await build.run()).fence
    stale = Fence(fence.task_id, 7)
    assert await build.store.wait_for_event(wait(stale)) == WaitAnswer(WaitStatus.FENCED)


async def test_a_task_that_has_succeeded_receives_nothing(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.wait_for_event(wait(fence))
    await build.done(succeeded(fence))
    assert await build.store.send_event(event(build)) == 0


async def test_a_woken_task_goes_before_tasks_that_were_enqueued_meanwhile(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run(queue="one")).fence
    await build.store.wait_for_event(wait(fence))
    await build.done(suspended(fence, "w:1"))
    clock.advance(DAY)
    newer = await build.one(queue="one")
    clock.advance(1)
    await build.store.send_event(event(build))
    await build.store.promote()
    worker = await build.worker()
    assert [(await build.claim(worker, 1))[0].fence.task_id for _ in range(2)] == [fence.task_id, newer]


@pytest.mark.parametrize("data", [b"null", b"\x00\xff", b"x" * 500_000])
async def test_the_data_of_an_event_arrives_byte_for_byte(build: Build, data: bytes) -> None:
    fence = (await build.run()).fence
    await build.store.wait_for_event(wait(fence))
    await build.store.send_event(event(build, data=data))
    assert (await build.store.wait_for_event(wait(fence))).data == data


async def test_forgetting_a_tenant_removes_its_events(build: Build) -> None:
    await build.store.send_event(event(build, tenant="acme"))
    await build.store.forget_tenant("acme")
    fence = (await build.run(tenant="acme")).fence
    assert (await build.store.wait_for_event(wait(fence, tenant="acme"))).status is WaitStatus.OPEN


async def test_a_wait_begins_at_the_time_of_the_store(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await build.store.wait_for_event(wait(fence, timeout_seconds=10.0))
    clock.now = START + 4
    assert (await build.store.wait_for_event(wait(fence))).left_seconds == 6.0
