"""Suspending: a run ends without a charge, and its task waits without a slot until it is woken."""

from __future__ import annotations

import pytest
from store_build import START, Build, SettableClock, retrying, succeeded

from tidegate.domain.outcome import Charge, Counters, FinishStatus, Suspended
from tidegate.domain.states import State
from tidegate.policy.order import LIFT_SECONDS
from tidegate.store.rows import ActionStatus, CancelStatus

HOUR = 3_600.0


async def test_a_suspended_task_waits_until_it_is_due_and_then_runs_again(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    row = await build.row(fence.task_id)
    assert (row.state, row.due_at, row.message) == (State.SUSPENDED, START + HOUR, "sleeps 1 h")
    clock.advance(HOUR - 1)
    assert await build.store.promote() == 0
    clock.advance(1)
    assert await build.store.promote() == 1
    [again] = await build.claim(await build.worker())
    assert again.fence == (fence.task_id, 2)
    await build.done(succeeded(again.fence))
    await build.sound()


async def test_a_suspension_charges_nothing(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, 10.0, "sleeps 10 s"))
    assert (await build.row(fence.task_id)).counters == Counters()
    clock.advance(10)
    await build.store.promote()
    [again] = await build.claim(await build.worker())
    assert again.counters == Counters()


async def test_a_suspended_task_without_a_due_moment_is_not_promoted(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, None, "waits for an event"))
    clock.advance(1_000 * HOUR)
    assert await build.store.promote() == 0
    row = await build.row(fence.task_id)
    assert (row.state, row.due_at) == (State.SUSPENDED, None)


async def test_a_task_that_wakes_goes_before_tasks_that_were_enqueued_meanwhile(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run(queue="one")).fence
    await build.done(Suspended(fence, HOUR, "sleeps 1 h", rank_offset=-LIFT_SECONDS))
    clock.advance(HOUR - LIFT_SECONDS / 2)
    newer = await build.one(queue="one")
    clock.advance(LIFT_SECONDS / 2)
    await build.store.promote()
    worker = await build.worker()
    assert [(await build.claim(worker, 1))[0].fence.task_id for _ in range(2)] == [fence.task_id, newer]


async def test_time_in_suspension_does_not_use_up_the_total_timeout(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    clock.advance(5)
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    clock.advance(HOUR)
    await build.store.promote()
    [again] = await build.claim(await build.worker())
    assert again.spent_seconds == pytest.approx(5)


async def test_the_history_shows_a_suspension_and_what_it_waited_for(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    entry = (await build.store.get_history(fence.task_id))[-1]
    assert (entry.run, entry.outcome, entry.charge, entry.why) == (1, "suspended", "", "sleeps 1 h")
    assert entry.next_run_at == START + HOUR


async def test_the_history_keeps_only_the_latest_suspensions_and_every_failure(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run()
    worker = await build.worker()
    await build.done(retrying(task.fence, delay=1.0))
    for _ in range(25):
        clock.advance(1)
        await build.store.promote()
        [task] = await build.claim(worker)
        await build.done(Suspended(task.fence, 1.0, "sleeps 1 s"))
    runs = [entry for entry in await build.store.get_history(task.fence.task_id) if entry.kind == "run"]
    assert [entry.outcome for entry in runs] == ["retrying", *["suspended"] * 20]
    assert [entry.run for entry in runs] == [1, *range(7, 27)]


async def test_suspended_tasks_are_counted_apart_and_are_no_work_for_workers(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run(queue="one")).fence
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    [stats] = await build.store.get_queue_stats()
    assert (stats.suspended, stats.ready, stats.running, stats.retrying) == (1, 0, 0, 0)
    assert stats.oldest_ready_at is None
    assert "1 task suspended" in stats.drain.left_out
    work = await build.store.get_work()
    assert sum(channel.runnable + channel.running for channel in work.channels) == 0


async def test_a_suspended_task_is_cancelled_at_once(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, None, "waits for an event"))
    assert await build.store.cancel([fence.task_id]) == {fence.task_id: CancelStatus.CANCELLED}
    assert await build.state(fence.task_id) is State.CANCELLED


async def test_a_run_that_suspends_while_its_cancel_is_requested_is_cancelled(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.cancel([fence.task_id])
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    assert await build.state(fence.task_id) is State.CANCELLED


async def test_a_suspended_task_cannot_be_run_now(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Suspended(fence, HOUR, "sleeps 1 h"))
    assert await build.store.run_now([fence.task_id]) == {fence.task_id: ActionStatus.REFUSED}
    assert await build.state(fence.task_id) is State.SUSPENDED


async def test_a_stale_suspension_is_fenced(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await build.done(retrying(fence, delay=0.0, charge=Charge.LOSS))
    clock.advance(1)
    assert await build.store.finish([Suspended(fence, HOUR, "sleeps 1 h")]) == [FinishStatus.FENCED]
    assert await build.state(fence.task_id) is State.RETRYING


async def test_a_due_suspended_task_spends_no_retry_budget(build: Build, clock: SettableClock) -> None:
    tasks = await build.running(30)
    await build.done(*(Suspended(task.fence, 10.0, "sleeps 10 s") for task in tasks))
    clock.advance(10)
    assert await build.store.promote() == 30
    states = await build.states([task.fence.task_id for task in tasks])
    assert set(states.values()) == {State.READY}
    assert all(budget.used == 0 for budget in await build.store.list_retry_budgets())
