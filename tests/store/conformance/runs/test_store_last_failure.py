"""The last failure: a claim tells a run why the latest failed run of its task failed."""

from __future__ import annotations

import pytest
from store_build import FAILED, START, Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.failure import Failure, LastFailure, Reason, Verdict
from tidegate.domain.moments import to_datetime
from tidegate.domain.outcome import Charge, Fence, Outcome, Released
from tidegate.store.common.columns import last_failure_of
from tidegate.store.rows import ClaimedTask

BAD = Failure(Verdict.TRANSIENT, Reason.INVALID_OUTPUT, message="name: field required")


async def next_run(build: Build, clock: SettableClock, run: ClaimedTask, end: Outcome) -> ClaimedTask:
    """End a run and return the next one of the task."""
    await build.done(end)
    clock.advance(5)
    await build.store.promote()
    (again,) = await build.claim(await build.worker(), queues=(run.queue,))
    return again


async def test_a_first_run_has_no_last_failure(build: Build) -> None:
    assert (await build.run()).last_failure is None


async def test_the_next_run_gets_the_failure_of_the_previous_run(build: Build, clock: SettableClock) -> None:
    run = await build.run()
    clock.advance(2.25)
    again = await next_run(build, clock, run, retrying(run.fence, failure=BAD, delay=1.0))
    assert again.last_failure == LastFailure(
        Reason.INVALID_OUTPUT, Verdict.TRANSIENT, "name: field required", 1, to_datetime(START + 2.25)
    )


async def test_the_latest_failure_counts(build: Build, clock: SettableClock) -> None:
    run = await build.run()
    again = await next_run(build, clock, run, retrying(run.fence, failure=BAD, delay=1.0))
    third = await next_run(build, clock, run, retrying(again.fence, delay=1.0))
    assert third.last_failure is not None
    assert (third.last_failure.reason, third.last_failure.run) == (FAILED.reason, 2)


async def test_releases_do_not_hide_an_earlier_failure(build: Build, clock: SettableClock) -> None:
    run = await build.run()
    again = await next_run(build, clock, run, retrying(run.fence, failure=BAD, delay=1.0))
    third = await next_run(build, clock, run, Released(again.fence, "shutdown", charge=Charge.RELEASE))
    assert third.last_failure is not None
    assert (third.last_failure.message, third.last_failure.run) == (BAD.message, 1)


async def test_a_task_that_was_only_released_has_no_last_failure(build: Build, clock: SettableClock) -> None:
    run = await build.run()
    assert (await next_run(build, clock, run, Released(run.fence, "shutdown"))).last_failure is None


async def test_a_redriven_task_gets_the_failure_it_died_of(build: Build, clock: SettableClock) -> None:
    run = await build.run()
    await build.done(dead(run.fence, failure=BAD))
    await build.store.redrive([run.fence.task_id])
    (again,) = await build.claim(await build.worker(), queues=(run.queue,))
    assert again.last_failure is not None
    assert again.last_failure.message == BAD.message


@pytest.mark.parametrize(
    ("printed", "given"),
    [
        ("refused: key sk-test-1abcdefghijklmnop", "sk-test-1abcdefghijklmnop"),
        ('a "quote", a \\ and a \x00 \ud800 é', "\x00"),
    ],
)
async def test_the_message_of_the_last_failure_has_secrets_masked(
    build: Build, clock: SettableClock, printed: str, given: str
) -> None:
    run = await build.run()
    failure = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, message=printed)
    again = await next_run(build, clock, run, retrying(run.fence, failure=failure, delay=1.0))
    assert again.last_failure is not None
    (ended,) = [entry for entry in await build.store.get_history(run.fence.task_id) if entry.run == 1]
    assert again.last_failure.message == ended.message
    assert given not in again.last_failure.message


async def test_each_task_of_a_claim_gets_its_own_last_failure(build: Build, clock: SettableClock) -> None:
    worker = await build.worker()
    first, second, third = await build.running(3, worker=worker)
    other = Failure(Verdict.TRANSIENT, Reason.TIMEOUT, message="too slow")
    await build.done(
        retrying(first.fence, failure=BAD, delay=1.0),
        retrying(second.fence, failure=other, delay=1.0),
        succeeded(third.fence),
    )
    clock.advance(5)
    await build.store.promote()
    fresh = await build.one(queue=first.queue)
    claimed = {task.fence.task_id: task for task in await build.claim(worker, queues=(first.queue,))}
    assert {
        task_id: task.last_failure and task.last_failure.message for task_id, task in claimed.items()
    } == {
        first.fence.task_id: BAD.message,
        second.fence.task_id: "too slow",
        fresh: None,
    }
    assert claimed[fresh].fence == Fence(fresh, 1)


def test_a_value_of_a_newer_version_counts_as_unknown() -> None:
    assert last_failure_of('["doubtful","not_yet_known","m",3,12]') == LastFailure(
        Reason.UNKNOWN, Verdict.UNKNOWN, "m", 3, to_datetime(12.0)
    )
