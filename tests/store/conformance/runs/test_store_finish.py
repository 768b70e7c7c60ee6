"""Finishing: each outcome is written once, charged to the right counter, with any content."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_build import FAILED, START, Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of
from tidegate.domain.outcome import (
    Cancelled,
    Charge,
    Counters,
    Fence,
    FinishStatus,
    Outcome,
    Released,
    Succeeded,
    Suspended,
)
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import StoredResult, TaskFilter

DONE, ALREADY, FENCED = FinishStatus.DONE, FinishStatus.ALREADY, FinishStatus.FENCED


async def test_finishing_no_runs_is_allowed(store: Store) -> None:
    assert await store.finish([]) == []


@pytest.mark.parametrize("result", [b"null", b'"\\u0000"', b"\x00\xff", b"1", b"x" * 2_000_000])
async def test_a_result_is_stored_byte_for_byte(build: Build, clock: SettableClock, result: bytes) -> None:
    task = await build.run()
    clock.advance(3)
    assert await build.store.finish([succeeded(task.fence, result)]) == [DONE]
    task_id = task.fence.task_id
    assert await build.store.get_result(task_id) == StoredResult(State.SUCCEEDED, result, CODEC)
    row = await build.row(task_id)
    assert (row.state, row.run, row.finished_at) == (State.SUCCEEDED, 1, START + 3)
    assert row.worker_id is not None


async def test_a_batch_of_mixed_outcomes_returns_statuses_in_order(build: Build) -> None:
    tasks = await build.running(7)
    fences = [task.fence for task in tasks]
    unknown = Fence(build.id(), 1)
    outcomes: list[Outcome] = [
        succeeded(fences[0]),
        dead(fences[1]),
        succeeded(unknown),
        retrying(fences[2]),
        Released(fences[3], "shutdown"),
        succeeded(Fence(fences[4].task_id, 2)),
        Cancelled(fences[5]),
        succeeded(fences[6]),
    ]
    assert await build.store.finish(outcomes) == [DONE, DONE, FENCED, DONE, DONE, FENCED, DONE, DONE]
    states = await build.states([fence.task_id for fence in fences])
    assert list(states.values()) == [
        State.SUCCEEDED, State.DEAD, State.RETRYING, State.READY, State.RUNNING, State.CANCELLED, State.SUCCEEDED,
    ]  # fmt: skip


def every_end(fence: Fence) -> dict[str, Outcome]:
    return {
        "succeeded": succeeded(fence),
        "retrying": retrying(fence),
        "released": Released(fence, "shutdown"),
        "suspended": Suspended(fence, 5.0, "sleeps 5 s"),
        "dead": dead(fence),
        "cancelled": Cancelled(fence),
    }


ENDS = list(every_end(Fence("", 0)))


@pytest.mark.parametrize("end", ENDS)
async def test_a_resent_outcome_returns_already_and_changes_nothing(
    build: Build, clock: SettableClock, end: str
) -> None:
    fence = (await build.run()).fence
    outcome = every_end(fence)[end]
    assert await build.store.finish([outcome]) == [DONE]
    before = await build.row(fence.task_id), await build.store.get_history(fence.task_id)
    clock.advance(5)
    assert await build.store.finish([outcome]) == [ALREADY]
    assert await build.store.finish([outcome]) == [ALREADY]
    assert (await build.row(fence.task_id), await build.store.get_history(fence.task_id)) == before


@pytest.mark.parametrize("end", ENDS)
async def test_a_resend_is_recognised_after_later_runs(build: Build, clock: SettableClock, end: str) -> None:
    fence = (await build.run(queue="q")).fence
    outcome = every_end(fence)[end]
    await build.done(outcome)
    clock.advance(20)
    await build.store.promote()
    await build.claim(await build.worker(), queues=("q",))
    assert await build.store.finish([outcome]) == [ALREADY]


@pytest.mark.parametrize("first", ENDS)
async def test_another_outcome_of_the_same_run_is_fenced(build: Build, first: str) -> None:
    for second in [end for end in ENDS if end != first]:
        fence = (await build.run()).fence
        await build.done(every_end(fence)[first])
        before = await build.row(fence.task_id)
        assert await build.store.finish([every_end(fence)[second]]) == [FENCED], second
        assert await build.row(fence.task_id) == before, second


async def test_the_same_run_twice_in_one_batch_ends_once(build: Build) -> None:
    one, other = (task.fence for task in await build.running(2))
    answers = await build.store.finish(
        [succeeded(one), succeeded(one), dead(one), retrying(other), retrying(other), succeeded(other)]
    )
    assert answers == [DONE, ALREADY, FENCED, DONE, ALREADY, FENCED]


@pytest.mark.parametrize("task_id", ["", "nonsense", "\ud800", "00000000-0000-0000-0000-000000000000"])
async def test_an_outcome_of_an_unknown_task_is_fenced(build: Build, task_id: str) -> None:
    fence = (await build.run()).fence
    answers = await build.store.finish(
        [succeeded(Fence(task_id, 1)), succeeded(fence), dead(Fence(task_id, 1))]
    )
    assert answers == [FENCED, DONE, FENCED]


# --- what becomes of the task ---


async def test_a_retrying_task_waits_until_it_is_due(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    clock.advance(1)
    await build.done(retrying(fence, delay=10.0, why="backoff 10 s"))
    row = await build.row(fence.task_id)
    assert (row.state, row.run, row.due_at, row.started_at) == (State.RETRYING, 1, START + 11, START)
    assert (row.reason, row.message) == ("network", "connection reset")
    assert row.counters == Counters(attempts=1)
    assert await build.store.get_result(fence.task_id) is None


async def test_a_dead_task_is_stored_with_its_reason(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    clock.advance(1)
    await build.done(dead(fence))
    row = await build.row(fence.task_id)
    assert (row.state, row.finished_at, row.counters) == (State.DEAD, START + 1, Counters(attempts=1))
    result = await build.store.get_result(fence.task_id)
    assert result == StoredResult(
        State.DEAD, b"", "", "network", "builtins.OSError", "connection reset", fingerprint_of(FAILED).id
    )


async def test_a_cancelled_run_has_its_reason(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Cancelled(fence, "the user closed the page"))
    result = await build.store.get_result(fence.task_id)
    assert result == StoredResult(State.CANCELLED, b"", "", "cancelled", "", "the user closed the page")


@pytest.mark.parametrize(
    "charge", [each for each in Charge if each not in (Charge.INTERRUPTED, Charge.SUSPENSION)]
)
async def test_each_charge_increments_its_own_counter(build: Build, charge: Charge) -> None:
    retried, dead_tasks = (task.fence for task in await build.running(2))
    await build.done(retrying(retried, charge=charge), dead(dead_tasks, charge=charge))
    spent = {
        Charge.ATTEMPT: Counters(attempts=1),
        Charge.PARK: Counters(parks=1),
        Charge.CRASH: Counters(crashes=1),
        Charge.LOSS: Counters(losses=1),
        Charge.RELEASE: Counters(releases=1),
        Charge.WAIT: Counters(),
        Charge.NOTHING: Counters(),
    }[charge]
    assert (await build.row(retried.task_id)).counters == spent
    assert (await build.row(dead_tasks.task_id)).counters == spent


async def test_a_release_increments_only_the_releases(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Released(fence, "shutdown"))
    row = await build.row(fence.task_id)
    assert (row.state, row.counters, row.reason) == (State.READY, Counters(releases=1), "")


async def test_an_interrupted_run_is_counted_as_released_and_interrupted(build: Build) -> None:
    fence = (await build.run()).fence
    await build.done(Released(fence, "shutdown", charge=Charge.INTERRUPTED))
    row = await build.row(fence.task_id)
    assert (row.state, row.counters) == (State.READY, Counters(releases=1, interruptions=1))


async def test_retries_are_counted_by_rule(build: Build, clock: SettableClock) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    for rule in ("a.B", 'odd "rule"', "a.B", ""):
        await build.done(retrying(task.fence, delay=0.0, rule=rule))
        clock.advance(1)
        await build.store.promote()
        [task] = await build.claim(worker, queues=("q",))
    assert dict(task.counters.by_rule) == {"a.B": 2, 'odd "rule"': 1}


@pytest.mark.parametrize("end", ["retrying", "released"])
async def test_a_retry_or_release_ends_as_cancelled_if_a_cancel_was_requested(build: Build, end: str) -> None:
    fence = (await build.run()).fence
    await build.store.cancel([fence.task_id], why="no longer wanted")
    outcome = every_end(fence)[end]
    assert await build.store.finish([outcome]) == [DONE]
    assert await build.state(fence.task_id) is State.CANCELLED
    assert await build.store.finish([outcome]) == [ALREADY]
    assert await build.store.finish([Cancelled(fence)]) == [FENCED]
    result = await build.store.get_result(fence.task_id)
    assert result is not None
    assert result.message == "no longer wanted"


@pytest.mark.parametrize(("end", "state"), [("succeeded", State.SUCCEEDED), ("dead", State.DEAD)])
async def test_a_run_that_ended_before_its_cancel_keeps_its_outcome(
    build: Build, end: str, state: State
) -> None:
    fence = (await build.run()).fence
    await build.store.cancel([fence.task_id])
    await build.done(every_end(fence)[end])
    assert await build.state(fence.task_id) is state


async def test_a_finish_from_a_retired_worker_is_accepted_until_the_run_is_requeued(build: Build) -> None:
    [task] = await build.orphaned()
    assert await build.store.finish([succeeded(task.fence)]) == [DONE]
    assert await build.store.list_orphans() == []


async def test_a_finish_of_a_deleted_task_is_fenced(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await build.done(succeeded(fence))
    clock.advance(100)
    assert await expire(build.store, finished_seconds=10.0, dead_seconds=10.0) == 1
    assert await build.store.finish([succeeded(fence)]) == [FENCED]


# --- content ---

UGLY = ["boom\x00tail", "boom\ud800tail", "\udfff", "x" * 300_000, "\x00", "🧨", "%s %(a)s {b}"]


@pytest.mark.parametrize("text", UGLY, ids=range(len(UGLY)))
async def test_a_failure_with_any_text_is_recorded(build: Build, text: str) -> None:
    failure = Failure(
        Verdict.UNKNOWN, Reason.UNKNOWN, message=text, error_class=text, status=599, code=text,
        request_id=text, evidence=text, traceback=text,
    )  # fmt: skip
    retried, dead_tasks = (task.fence for task in await build.running(2))
    await build.done(
        retrying(retried, failure=failure, why=text, rule=text[:50]),
        dead(dead_tasks, failure=failure, why=text),
    )
    [entry] = [entry for entry in await build.store.get_history(dead_tasks.task_id) if entry.kind == "run"]
    expected = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    assert entry.message == entry.traceback == entry.why == expected
    assert (await build.row(retried.task_id)).message == expected
    assert (await build.store.list_dead_letters(TaskFilter()))[0].message == expected


class Unprintable(str):
    """A text whose methods raise errors."""

    __slots__ = ()

    def isascii(self) -> bool:
        raise ValueError("no")


BROKEN: list[dict[str, Any]] = [
    {"message": 7},
    {"message": None},
    {"message": Unprintable("boom")},
    {"traceback": b"bytes"},
    {"status": 2**70},
    {"status": "x" * 10, "code": object()},
]


@pytest.mark.parametrize("broken", BROKEN, ids=range(len(BROKEN)))
async def test_a_failure_that_cannot_be_stored_does_not_harm_its_batch(
    build: Build, broken: dict[str, Any]
) -> None:
    tasks = await build.running(9)
    failure = Failure(**{"verdict": Verdict.PERMANENT, "reason": Reason.AUTH} | broken)
    outcomes: list[Outcome] = [succeeded(task.fence, b"%d" % n) for n, task in enumerate(tasks)]
    outcomes[3] = dead(tasks[3].fence, failure=failure)
    outcomes[6] = retrying(tasks[6].fence, failure=failure)
    assert await build.store.finish(outcomes) == [DONE] * 9
    states = list((await build.states([task.fence.task_id for task in tasks])).values())
    assert states.count(State.SUCCEEDED) == 7
    assert (states[3], states[6]) == (State.DEAD, State.RETRYING)
    letter = (await build.store.list_dead_letters(TaskFilter()))[0]
    assert letter.reason == "auth"
    for n, task in enumerate(tasks):
        if n not in (3, 6):
            result = await build.store.get_result(task.fence.task_id)
            assert result is not None
            assert result.data == b"%d" % n


@pytest.mark.parametrize("result", [None, 7.5j, object()])
async def test_a_result_that_cannot_be_stored_still_ends_the_task_as_succeeded(
    build: Build, result: Any
) -> None:
    one, other = (task.fence for task in await build.running(2))
    assert await build.store.finish([Succeeded(one, result, CODEC), succeeded(other)]) == [DONE, DONE]
    stored = await build.store.get_result(one.task_id)
    assert stored is not None
    assert stored.state is State.SUCCEEDED
    assert b"could not be stored" in stored.data


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -5.0])
async def test_a_delay_or_rank_that_is_not_a_number_does_not_lose_the_task(
    build: Build, clock: SettableClock, number: float
) -> None:
    delayed, ranked, released = (task.fence for task in await build.running(3))
    await build.done(
        retrying(delayed, delay=number),
        retrying(ranked, offset=number),
        Released(released, "shutdown", rank_offset=number),
    )
    clock.advance(3_600)
    await build.store.promote()
    assert len(await build.claim(await build.worker())) == 3


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=()), max_size=60))
async def test_no_error_text_keeps_a_task_running(build: Build, text: str) -> None:
    failure = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, message=text, traceback=text, error_class=text)
    fence = (await build.run()).fence
    await build.done(dead(fence, failure=failure, why=text))
    assert await build.state(fence.task_id) is State.DEAD


async def test_every_outcome_except_success_has_a_history_row(build: Build) -> None:
    fences = [task.fence for task in await build.running(len(ENDS))]
    ends = [every_end(fence)[end] for fence, end in zip(fences, ENDS, strict=True)]
    await build.done(*ends)
    for fence, end in zip(fences, ENDS, strict=True):
        entry = (await build.store.get_history(fence.task_id))[-1]
        assert (entry.kind, entry.run, entry.outcome, entry.ended_at) == ("run", 1, end, START)
        if end in ("retrying", "dead"):
            assert (entry.reason, entry.error_class) == (FAILED.reason, FAILED.error_class)
