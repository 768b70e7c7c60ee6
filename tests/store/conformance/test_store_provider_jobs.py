"""Provider jobs: what runs report of them, and how a task that ends cancels them first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_build import Build, SettableClock

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Dead, Fence, FinishStatus, Retrying, Suspended
from tidegate.domain.provider_job import CANCELLING_LABEL, CancelCause, JobState
from tidegate.domain.states import State
from tidegate.store.provider_job_rows import (
    JobAnswer,
    JobBegin,
    JobEvent,
    JobItem,
    JobItems,
    JobReport,
    JobStatus,
)
from tidegate.store.rows import CancelStatus, ClaimedTask

KEY = "job:1"


def begin(fence: Fence, *, can_cancel: bool = True, key: str = KEY) -> JobBegin:
    return JobBegin(fence, key, "batch", "openai", can_cancel)


def report(fence: Fence, event: JobEvent, *, generation: int = 1, **facts: Any) -> JobReport:
    return JobReport(fence, KEY, generation, event, facts.pop("job_id", "batch_1"), **facts)


def suspended(fence: Fence, delay: float = 60.0) -> Suspended:
    return Suspended(fence, delay, "waits for provider job batch_1")


def failed(fence: Fence, charge: Charge = Charge.ATTEMPT) -> Retrying:
    failure = Failure(Verdict.TRANSIENT, Reason.NETWORK, message="gone")
    return Retrying(fence, failure, 0.0, charge, 0.0, "again")


def dead(fence: Fence, reason: Reason = Reason.UNKNOWN) -> Dead:
    return Dead(fence, Failure(Verdict.PERMANENT, reason, message="over"), Charge.NOTHING, "over")


async def submitted(build: Build, *, can_cancel: bool = True) -> Fence:
    """Return a run whose job the provider has."""
    fence = (await build.run()).fence
    await build.store.begin_provider_job(begin(fence, can_cancel=can_cancel))
    await build.store.record_provider_job(report(fence, JobEvent.SUBMITTED, delay_seconds=60))
    return fence


async def claimed(build: Build) -> ClaimedTask:
    """Promote and claim the one task that is due."""
    await build.store.promote()
    [task] = await build.claim(await build.worker())
    return task


async def the_state(build: Build, task_id: str) -> State:
    return (await build.states([task_id]))[task_id]


async def test_a_new_job_is_to_be_submitted(build: Build) -> None:
    fence = (await build.run()).fence
    answer = await build.store.begin_provider_job(begin(fence))
    assert answer == JobAnswer(JobStatus.KNOWN)
    assert await build.store.begin_provider_job(begin(fence)) == answer


async def test_the_id_of_a_job_is_kept_for_later_runs(build: Build, clock: SettableClock) -> None:
    fence = await submitted(build)
    await build.done(suspended(fence))
    clock.advance(60)
    again = (await claimed(build)).fence
    answer = await build.store.begin_provider_job(begin(again))
    assert (answer.state, answer.job_id, answer.polls) == (JobState.RUNNING, "batch_1", 0)
    assert answer.age_seconds == pytest.approx(60)
    assert answer.poll_in_seconds == pytest.approx(0)
    await build.sound()


async def test_polls_are_counted_and_a_good_one_ends_the_row_of_failed_ones(build: Build) -> None:
    fence = await submitted(build)
    store = build.store
    await store.record_provider_job(report(fence, JobEvent.POLL_FAILED, error="503", delay_seconds=9))
    answer = await store.record_provider_job(report(fence, JobEvent.POLL_FAILED, error="503"))
    assert (answer.polls, answer.failed_polls, answer.error) == (2, 2, "503")
    answer = await store.record_provider_job(
        report(fence, JobEvent.PENDING, delay_seconds=30, done=1, total=4, note="in line")
    )
    assert (answer.polls, answer.failed_polls, answer.error) == (3, 0, "")
    assert answer.poll_in_seconds == pytest.approx(30, abs=2)
    [row] = await store.list_provider_jobs(fence.task_id)
    assert (row.name, row.provider, row.job_id, row.polls) == ("batch", "openai", "batch_1", 3)
    assert (row.done, row.total, row.note) == (1, 4, "in line")
    assert row.is_polled


async def test_the_result_is_kept_for_later_runs(build: Build) -> None:
    fence = await submitted(build)
    await build.store.record_provider_job(report(fence, JobEvent.DONE, data=b"7", codec="json"))
    await build.done(failed(fence))
    again = (await claimed(build)).fence
    answer = await build.store.begin_provider_job(begin(again))
    assert (answer.state, answer.data, answer.codec) == (JobState.DONE, b"7", "json")


async def test_reports_of_a_lost_run_change_nothing(build: Build) -> None:
    fence = await submitted(build)
    stale = fence._replace(run=fence.run + 1)
    for answer in (
        await build.store.begin_provider_job(begin(stale)),
        await build.store.record_provider_job(report(stale, JobEvent.DONE, data=b"7")),
    ):
        assert answer.status is JobStatus.FENCED
    [row] = await build.store.list_provider_jobs(fence.task_id)
    assert row.state is JobState.RUNNING


async def test_reports_of_an_earlier_generation_only_add_their_items(build: Build) -> None:
    fence = await submitted(build)
    store, item = build.store, JobItem("a", b"1", "json")
    answer = await store.record_provider_job(report(fence, JobEvent.UNFINISHED))
    assert (answer.generation, answer.state, answer.job_id) == (2, JobState.SUBMITTING, "")
    answer = await store.record_provider_job(report(fence, JobEvent.DONE, items=(item,)))
    assert (answer.generation, answer.state) == (2, JobState.SUBMITTING)
    assert await store.read_job_items(JobItems(fence, KEY)) == [item]


async def test_of_an_item_with_two_results_the_first_counts(build: Build) -> None:
    fence = await submitted(build)
    store = build.store
    for data in (b"1", b"2"):
        await store.record_provider_job(report(fence, JobEvent.ITEMS, items=(JobItem("a", data, "json"),)))
    assert await store.read_job_items(JobItems(fence, KEY)) == [JobItem("a", b"1", "json")]
    [row] = await store.list_provider_jobs(fence.task_id)
    assert (row.items, row.polls) == (1, 0)


async def test_items_are_read_page_by_page(build: Build) -> None:
    fence = await submitted(build)
    items = tuple(JobItem(f"{number:04}", b"1", "json") for number in range(450))
    await build.store.record_provider_job(report(fence, JobEvent.ITEMS, items=items))
    found: list[JobItem] = []
    while page := await build.store.read_job_items(JobItems(fence, KEY, found[-1].item if found else "")):
        found += page
    assert tuple(found) == items


@pytest.mark.parametrize("event", [JobEvent.FAILED, JobEvent.CANCELLED, JobEvent.CANCEL_FAILED])
async def test_a_job_without_a_result_is_begun_once_more_after_its_task_failed(
    build: Build, clock: SettableClock, event: JobEvent
) -> None:
    fence = await submitted(build)
    await build.store.record_provider_job(report(fence, event, error="refused"))
    await build.done(suspended(fence))
    clock.advance(60)
    same = (await claimed(build)).fence
    answer = await build.store.begin_provider_job(begin(same))
    assert (answer.state, answer.error, answer.generation) == (JobState(event.value), "refused", 1)
    await build.done(failed(same))
    answer = await build.store.begin_provider_job(begin((await claimed(build)).fence))
    assert (answer.state, answer.job_id, answer.generation) == (JobState.SUBMITTING, "", 2)


@pytest.mark.parametrize("can_cancel", [True, False])
async def test_a_job_that_timed_out_goes_on_after_a_failure_unless_it_was_cancelled(
    build: Build, can_cancel: bool
) -> None:
    fence = await submitted(build, can_cancel=can_cancel)
    await build.store.record_provider_job(report(fence, JobEvent.TIMED_OUT, error="slow"))
    await build.done(failed(fence))
    answer = await build.store.begin_provider_job(begin((await claimed(build)).fence, can_cancel=can_cancel))
    expected = (JobState.SUBMITTING, "", 2) if can_cancel else (JobState.RUNNING, "batch_1", 1)
    assert (answer.state, answer.job_id, answer.generation) == expected


async def test_the_cancel_of_a_suspended_task_wakes_it_for_one_run(
    build: Build, clock: SettableClock
) -> None:
    fence = await submitted(build)
    await build.done(suspended(fence, delay=3_600))
    store, task_id = build.store, fence.task_id
    for _ in range(2):
        assert await store.cancel([task_id]) == {task_id: CancelStatus.REQUESTED}
    task = await claimed(build)
    assert task.labels == {CANCELLING_LABEL: CancelCause.REQUEST}
    await store.record_provider_job(report(task.fence, JobEvent.CANCELLED))
    await build.done(Cancelled(task.fence))
    assert await the_state(build, task_id) is State.CANCELLED
    assert (await store.read_tasks([task_id]))[task_id].labels == {}
    await build.sound()


async def test_a_ready_task_cancels_its_jobs_too(build: Build, clock: SettableClock) -> None:
    fence = await submitted(build)
    await build.done(suspended(fence))
    clock.advance(60)
    await build.store.promote()
    assert await build.store.cancel([fence.task_id]) == {fence.task_id: CancelStatus.REQUESTED}
    assert CANCELLING_LABEL in (await claimed(build)).labels


async def test_a_forced_cancel_waits_for_nothing(build: Build) -> None:
    fence = await submitted(build)
    await build.done(suspended(fence))
    assert await build.store.cancel([fence.task_id], force=True) == {fence.task_id: CancelStatus.CANCELLED}


async def test_a_task_without_a_job_to_cancel_is_cancelled_at_once(build: Build) -> None:
    fence = await submitted(build, can_cancel=False)
    await build.done(suspended(fence))
    done = await submitted(build)
    await build.store.record_provider_job(report(done, JobEvent.DONE, data=b"7"))
    await build.done(suspended(done))
    ids = [fence.task_id, done.task_id]
    assert await build.store.cancel(ids) == dict.fromkeys(ids, CancelStatus.CANCELLED)


@pytest.mark.parametrize("end", [Cancelled, suspended, failed])
async def test_a_running_task_that_is_cancelled_runs_once_more(build: Build, end: Any) -> None:
    fence = await submitted(build)
    await build.store.cancel([fence.task_id])
    outcome = end(fence)
    assert await build.store.finish([outcome]) == [FinishStatus.DONE]
    assert await build.store.finish([outcome]) == [FinishStatus.ALREADY]
    assert await the_state(build, fence.task_id) is State.READY
    task = await claimed(build)
    assert task.labels == {CANCELLING_LABEL: CancelCause.REQUEST}
    assert task.counters.attempts == 0
    for number in (2, 3):  # these runs do not come to the job
        await build.store.cancel([fence.task_id])
        await build.done(Cancelled(task.fence))
        task = await claimed(build)
        assert task.labels == {CANCELLING_LABEL: f"request {number}"}
    await build.done(Cancelled(task.fence))
    assert await the_state(build, fence.task_id) is State.CANCELLED
    [job] = await build.store.list_provider_jobs(fence.task_id)
    assert (job.state, job.error) == (JobState.CANCEL_FAILED, "its task ended before it was cancelled")
    await build.sound()


async def test_a_task_whose_deadline_is_over_runs_once_more(build: Build) -> None:
    fence = await submitted(build)
    await build.store.finish([dead(fence, Reason.DEADLINE)])
    task = await claimed(build)
    assert task.labels == {CANCELLING_LABEL: CancelCause.DEADLINE}
    await build.store.record_provider_job(report(task.fence, JobEvent.CANCELLED))
    await build.done(dead(task.fence, Reason.DEADLINE))
    assert await the_state(build, fence.task_id) is State.DEAD
    assert (await build.store.read_tasks([fence.task_id]))[fence.task_id].labels == {}
    await build.sound()


async def test_a_task_that_dies_of_something_else_keeps_its_job_for_a_redrive(build: Build) -> None:
    fence = await submitted(build)
    await build.done(dead(fence))
    assert await the_state(build, fence.task_id) is State.DEAD
    assert await build.store.cancel([fence.task_id]) == {fence.task_id: CancelStatus.FINISHED}
    [row] = await build.store.list_provider_jobs(fence.task_id)
    assert (row.state, row.cancel_requested_at) == (JobState.RUNNING, None)


async def test_cancels_and_suspensions_at_the_same_moment_cancel_each_job(build: Build) -> None:
    tasks = await build.running(40)
    store = build.store
    for task in tasks:
        await store.begin_provider_job(begin(task.fence))
        await store.record_provider_job(report(task.fence, JobEvent.SUBMITTED))
    await asyncio.gather(
        *(
            call
            for task in tasks
            for call in (store.finish([suspended(task.fence, 3_600)]), store.cancel([task.fence.task_id]))
        )
    )
    await store.promote()
    states = await build.states([task.fence.task_id for task in tasks])
    assert set(states.values()) == {State.READY}
    for task in tasks:
        [row] = await store.list_provider_jobs(task.fence.task_id)
        assert row.cancel_requested_at is not None
