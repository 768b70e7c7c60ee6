"""Usage: what the calls of a task consumed is summed over its runs, shown with it and deleted with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_build import Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.calls import NO_CALLS, CallLog, CallSummary
from tidegate.domain.outcome import Cancelled, Fence, FinishStatus, Outcome, Released, Succeeded
from tidegate.domain.states import State
from tidegate.domain.usage import Usage, UsageTotals
from tidegate.store.rows import TaskFilter

ONE = UsageTotals(1, 100, 40, 10, 30, 20)
TWO = UsageTotals(2, 200, 80, 20, 60, 40)
THREE = UsageTotals(3, 300, 120, 30, 90, 60)


def used(outcome: Outcome, totals: UsageTotals = ONE) -> Outcome:
    """The outcome of a run whose calls consumed this usage."""
    return with_calls(outcome, CallSummary(count=totals.calls, used=totals))


def with_calls(outcome: Outcome, calls: CallSummary) -> Outcome:
    return outcome._replace(calls=calls) if isinstance(outcome, Succeeded) else replace(outcome, calls=calls)


def every_end(fence: Fence) -> dict[str, Outcome]:
    return {
        "succeeded": succeeded(fence),
        "retrying": retrying(fence),
        "released": Released(fence, "shutdown"),
        "dead": dead(fence),
        "cancelled": Cancelled(fence),
    }


ENDS = list(every_end(Fence("", 0)))


@pytest.mark.parametrize("end", ENDS)
async def test_a_task_has_the_usage_of_its_calls_after_any_outcome(build: Build, end: str) -> None:
    fence = (await build.run()).fence
    await build.done(used(every_end(fence)[end], TWO))
    assert (await build.row(fence.task_id)).usage == TWO
    listed = await build.store.list_tasks(TaskFilter())
    assert [row.usage for row in listed] == [TWO]


@pytest.mark.parametrize("end", ENDS)
async def test_a_task_whose_responses_stated_no_usage_has_none(build: Build, end: str) -> None:
    fence = (await build.run()).fence
    await build.done(with_calls(every_end(fence)[end], CallSummary(count=3)))
    assert (await build.row(fence.task_id)).usage is None


async def test_usage_adds_up_over_failed_released_and_final_runs(build: Build, clock: SettableClock) -> None:
    worker = await build.worker()
    task = (await build.running(worker=worker))[0]
    task_id = task.fence.task_id
    for run, end in enumerate((Released, retrying), start=1):
        fence = Fence(task_id, run)
        await build.done(used(end(fence, "shutdown") if end is Released else retrying(fence, delay=1.0)))
        clock.advance(2)
        await build.store.promote()
        await build.claim(worker, queues=(task.queue,))
    assert (await build.row(task_id)).usage == TWO
    await build.done(used(succeeded(Fence(task_id, 3))))
    row = await build.row(task_id)
    assert (row.state, row.usage) == (State.SUCCEEDED, THREE)


async def test_a_redriven_task_keeps_its_earlier_usage(build: Build) -> None:
    task = await build.run()
    await build.done(used(dead(task.fence)))
    await build.store.redrive([task.fence.task_id])
    (again,) = await build.claim(await build.worker(), queues=(task.queue,))
    await build.done(used(dead(again.fence), TWO))
    assert (await build.row(task.fence.task_id)).usage == THREE


@pytest.mark.parametrize("end", ENDS)
async def test_a_resent_or_refused_outcome_adds_no_usage(build: Build, end: str) -> None:
    fence = (await build.run()).fence
    outcome = used(every_end(fence)[end])
    await build.done(outcome)
    late = used(succeeded(Fence(fence.task_id, 7)))
    assert await build.store.finish([outcome, late]) == [FinishStatus.ALREADY, FinishStatus.FENCED]
    assert (await build.row(fence.task_id)).usage == ONE


async def test_a_batch_adds_its_own_usage_to_each_task(build: Build) -> None:
    fences = [task.fence for task in await build.running(4)]
    stray = Fence(build.id(), 1)
    answers = await build.store.finish(
        [
            used(succeeded(fences[0]), TWO),
            succeeded(fences[1]),
            used(succeeded(stray)),
            used(retrying(fences[2])),
            used(dead(fences[3]), THREE),
        ]
    )
    assert answers == [
        FinishStatus.DONE,
        FinishStatus.DONE,
        FinishStatus.FENCED,
        FinishStatus.DONE,
        FinishStatus.DONE,
    ]
    rows = await build.store.read_tasks([fence.task_id for fence in fences])
    assert [rows[fence.task_id].usage for fence in fences] == [TWO, None, ONE, THREE]


async def test_usage_survives_content_that_cannot_be_stored(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(used(succeeded(fence)._replace(result="no bytes")))
    assert (await build.row(fence.task_id)).usage == ONE


async def test_usage_is_deleted_with_its_task(build: Build, clock: SettableClock) -> None:
    letter, done = (await build.run()).fence, (await build.run()).fence
    await build.done(used(dead(letter)), used(succeeded(done)))
    await build.store.purge([letter.task_id])
    clock.advance(100)
    await expire(build.store, finished_seconds=50, dead_seconds=50)
    assert await build.store.read_tasks([letter.task_id, done.task_id]) == {}
    # Storing the same ids again shows whether anything was left behind.
    await build.store.enqueue(
        [build.new(id=task_id, queue="again") for task_id in (letter.task_id, done.task_id)]
    )
    rows = await build.store.read_tasks([letter.task_id, done.task_id])
    assert [row.usage for row in rows.values()] == [None, None]


def test_impossible_token_counts_add_no_usage() -> None:
    log = CallLog()
    for odd in (-1, 10**13, float("nan"), float("inf"), "7", None):
        log.begin("model")
        usage = Usage(input_tokens=odd, output_tokens=5)  # type: ignore[arg-type]
        log.end("model", None, may_be_processed=True, is_interrupted=False, usage=usage)
    assert log.summary("").used == UsageTotals(calls=6, output_tokens=30)
    assert NO_CALLS.used is None
