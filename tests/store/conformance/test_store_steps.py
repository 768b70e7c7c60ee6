"""Steps: each is begun, ended and read as its runs report it, and a paid answer is never discarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.outcome import Fence
from tidegate.domain.step import DoubtState, OnDoubt, StepState
from tidegate.store.protocol import Store
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    DoubtRow,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
    StepRow,
)
from tidegate.worker.engine.finisher import CONTENT_ERRORS

UNKNOWN = "01890000-0000-7000-8000-000000000000"
BEGUN = BegunStep(BeginStatus.BEGUN)
DONE = EndedStep(EndStatus.DONE)


async def begin(store: Store, fence: Fence, key: str = "k", attempt: int = 1, **changes: Any) -> BegunStep:
    (answer,) = await store.begin_steps([StepBegin(fence, key, attempt, f"step {key}", **changes)])
    return answer


async def end(
    store: Store,
    fence: Fence,
    data: bytes = b"1",
    *,
    key: str = "k",
    attempt: int = 1,
    status: EndStatus = EndStatus.DONE,
    **changes: Any,
) -> EndedStep:
    """Report a result, or another end without one."""
    given = {"data": data, "codec": "json"} if status is EndStatus.DONE else {}
    (answer,) = await store.end_steps([StepEnd(fence, key, attempt, status, **given, **changes)])
    return answer


async def again(build: Build, fence: Fence) -> Fence:
    """End the run as one to be retried at once, and claim its next run."""
    await build.done(retrying(fence, delay=0.0))
    await build.store.promote()
    (task,) = await build.claim(await build.worker())
    assert task.fence.task_id == fence.task_id
    return task.fence


async def superseded(build: Build, **changes: Any) -> tuple[Fence, Fence]:
    """Return two runs of a task: the first has begun the step `k` and is over, the second is the current one."""
    first = (await build.run(queue="main")).fence
    assert await begin(build.store, first, **changes) == BEGUN
    return first, await again(build, first)


async def only_step(store: Store, task_id: str) -> StepRow:
    (row,) = await store.read_steps(task_id)
    return row


async def ledger(store: Store, task_id: str) -> list[DoubtRow]:
    return await store.list_doubts(state=None, task_id=task_id)


async def states_of(store: Store, task_id: str) -> list[tuple[int, int, str]]:
    """Return run, attempt and state of each entry of a task."""
    return [(entry.run, entry.attempt, entry.state.value) for entry in await ledger(store, task_id)]


# --- begin -------------------------------------------------------------------------------------------------


async def test_a_new_step_is_open_until_its_result_is_recorded(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    begun_at = clock.now
    assert await begin(build.store, fence, upstream="openai") == BEGUN
    row = await only_step(build.store, fence.task_id)
    assert row == StepRow("k", "step k", StepState.OPEN, 1, 1, begun_at, None, 0, None, "", "openai")

    clock.advance(2)
    assert await end(build.store, fence, b"[1,2]") == DONE
    row = await only_step(build.store, fence.task_id)
    assert row == StepRow(
        "k", "step k", StepState.DONE, 1, 1, begun_at, begun_at + 2, 5, b"[1,2]", "json", "openai"
    )
    assert await ledger(build.store, fence.task_id) == []


async def test_a_step_with_a_result_is_not_begun_again(build: Build) -> None:
    first, second = await superseded(build)
    await end(build.store, first, b"7")
    assert await begin(build.store, second) == BegunStep(BeginStatus.DONE, b"7", "json")
    assert (await only_step(build.store, first.task_id)).run == 1


async def test_the_fingerprint_of_the_arguments_comes_back_with_the_result(build: Build) -> None:
    fence = (await build.run(queue="main")).fence
    await begin(build.store, fence, arguments="one")
    await end(build.store, fence)
    assert (await only_step(build.store, fence.task_id)).arguments == "one"
    answer = await begin(build.store, await again(build, fence), arguments="two")
    assert (answer.status, answer.arguments) == (BeginStatus.DONE, "one")


async def test_an_empty_result_is_a_result(build: Build) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    await end(build.store, fence, b"")
    assert await begin(build.store, fence, attempt=2) == BegunStep(BeginStatus.DONE, b"", "json")
    row = await only_step(build.store, fence.task_id)
    assert (row.data, row.size) == (b"", 0)


async def test_a_failed_step_is_begun_again(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    assert await end(build.store, fence, status=EndStatus.FAILED, cause="refused") == EndedStep(
        EndStatus.FAILED
    )
    assert (await only_step(build.store, fence.task_id)).state is StepState.FAILED
    clock.advance(1)
    assert await begin(build.store, fence, attempt=2) == BEGUN
    row = await only_step(build.store, fence.task_id)
    assert (row.state, row.attempt, row.begun_at, row.ended_at) == (StepState.OPEN, 2, clock.now, None)
    assert await ledger(build.store, fence.task_id) == []


async def test_a_resent_begin_changes_nothing(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    before = await only_step(build.store, fence.task_id)
    clock.advance(1)
    assert await begin(build.store, fence) == BEGUN
    assert await only_step(build.store, fence.task_id) == before


async def test_a_begin_that_arrives_late_does_not_replace_a_later_attempt(build: Build) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    await end(build.store, fence, status=EndStatus.FAILED)
    await begin(build.store, fence, attempt=2)
    assert await begin(build.store, fence, attempt=1) == BEGUN
    assert (await only_step(build.store, fence.task_id)).attempt == 2
    assert await ledger(build.store, fence.task_id) == []


async def test_only_the_current_run_begins_steps(build: Build) -> None:
    first, second = await superseded(build)
    done = (await build.run()).fence
    await build.done(succeeded(done))
    good = (await build.run()).fence
    fences = [first, good, done, Fence(UNKNOWN, 1), Fence("nonsense", 1), second]
    answers = await build.store.begin_steps([StepBegin(fence, "new", 1, "s") for fence in fences])
    assert [answer.status.value for answer in answers] == [
        "fenced", "begun", "fenced", "fenced", "fenced", "begun",
    ]  # fmt: skip
    assert [row.run for row in await build.store.read_steps(first.task_id)] == [1, 2]
    assert await build.store.read_steps(done.task_id) == []


async def test_a_step_in_doubt_is_repeated_and_entered(build: Build, clock: SettableClock) -> None:
    first, second = await superseded(build, upstream="openai")
    sent_at = clock.now
    clock.advance(5)
    assert await begin(build.store, second) == BegunStep(BeginStatus.BEGUN, is_repeat=True)
    row = await only_step(build.store, first.task_id)
    assert (row.state, row.run, row.begun_at) == (StepState.OPEN, 2, clock.now)
    (entry,) = await ledger(build.store, first.task_id)
    assert entry == DoubtRow(
        entry.id, first.task_id, "app:work", "main", "", "step k", "k", 1, 1, DoubtState.REPEATED,
        OnDoubt.REPEAT, "its run ended without an answer", "openai", "", sent_at, clock.now, clock.now, "", "",
    )  # fmt: skip
    assert (await begin(build.store, second)).status is BeginStatus.BEGUN
    assert len(await ledger(build.store, first.task_id)) == 1


@pytest.mark.parametrize("on_doubt", [OnDoubt.ASK, OnDoubt.RECONCILE])
async def test_a_step_in_doubt_is_not_begun_if_it_must_not_be_repeated(
    build: Build, on_doubt: OnDoubt
) -> None:
    first, second = await superseded(build)
    before = await only_step(build.store, first.task_id)
    for _ in range(2):
        assert await begin(build.store, second, on_doubt=on_doubt) == BegunStep(BeginStatus.IN_DOUBT)
    assert await only_step(build.store, first.task_id) == before
    (entry,) = await ledger(build.store, first.task_id)
    assert (entry.run, entry.state, entry.on_doubt, entry.resolved_at) == (1, DoubtState.OPEN, on_doubt, None)


async def test_a_doubt_that_was_asked_about_can_be_repeated_by_a_later_begin(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second, on_doubt=OnDoubt.RECONCILE)
    assert await begin(build.store, second) == BegunStep(BeginStatus.BEGUN, is_repeat=True)
    assert await states_of(build.store, first.task_id) == [(1, 1, "repeated")]


async def test_an_attempt_in_doubt_is_repeated_by_the_next_attempt_of_its_run(build: Build) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    assert await begin(build.store, fence, attempt=2) == BegunStep(BeginStatus.BEGUN, is_repeat=True)
    assert await states_of(build.store, fence.task_id) == [(1, 1, "repeated")]


async def test_equal_entries_of_one_batch_are_answered_as_if_sent_one_by_one(build: Build) -> None:
    fence = (await build.run()).fence
    begins = [StepBegin(fence, "k", 1, "s"), StepBegin(fence, "a", 1, "s"), StepBegin(fence, "k", 1, "s")]
    assert await build.store.begin_steps(begins) == [BEGUN] * 3
    ends = [StepEnd(fence, "k", 1, EndStatus.DONE, data) for data in (b"1", b"2")]
    other = StepEnd(fence, "k", 2, EndStatus.DONE, b"3")
    assert await build.store.end_steps([*ends, other]) == [
        DONE,
        DONE,
        EndedStep(EndStatus.ALREADY, b"1"),
    ]
    assert [row.key for row in await build.store.read_steps(fence.task_id)] == ["k", "a"]


async def test_an_empty_batch_does_nothing(build: Build) -> None:
    assert await build.store.begin_steps([]) == []
    assert await build.store.end_steps([]) == []


# --- end ---------------------------------------------------------------------------------------------------


async def test_a_resent_result_changes_nothing(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    await end(build.store, fence)
    before = await only_step(build.store, fence.task_id)
    clock.advance(1)
    assert await end(build.store, fence) == DONE
    assert await only_step(build.store, fence.task_id) == before
    assert await ledger(build.store, fence.task_id) == []


async def test_a_late_result_is_adopted_before_the_step_is_begun_again(build: Build) -> None:
    first, second = await superseded(build)
    assert await build.store.find_doubts() == 1
    assert await end(build.store, first, b"late") == DONE
    assert await states_of(build.store, first.task_id) == [(1, 1, "answered")]
    assert await begin(build.store, second) == BegunStep(BeginStatus.DONE, b"late", "json")


async def test_a_late_result_is_adopted_while_the_next_run_repeats_the_step(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    assert await end(build.store, first, b"late") == DONE
    row = await only_step(build.store, first.task_id)
    assert (row.state, row.run, row.data) == (StepState.DONE, 1, b"late")
    assert await states_of(build.store, first.task_id) == [(1, 1, "answered")]
    for _ in range(2):
        assert await end(build.store, second, b"mine") == EndedStep(EndStatus.ALREADY, b"late", "json")
    assert await end(build.store, first, b"late") == DONE
    assert await states_of(build.store, first.task_id) == [(1, 1, "answered"), (2, 1, "paid_twice")]
    assert (await only_step(build.store, first.task_id)).data == b"late"


async def test_a_result_after_that_of_the_next_run_is_paid_twice(build: Build, clock: SettableClock) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    await end(build.store, second, b"mine")
    clock.advance(1)
    late = EndedStep(EndStatus.ALREADY, b"mine", "json")
    assert await end(build.store, first, b"late", upstream="openai", request_id="req_1") == late
    (entry,) = await ledger(build.store, first.task_id)
    assert (entry.run, entry.state, entry.resolved_at) == (1, DoubtState.PAID_TWICE, clock.now)
    assert (entry.cause, entry.upstream, entry.request_id) == (
        "its answer came after another result was recorded", "openai", "req_1",
    )  # fmt: skip
    clock.advance(1)
    assert await end(build.store, first, b"late") == late
    assert (await ledger(build.store, first.task_id))[0].resolved_at == clock.now - 1
    assert (await only_step(build.store, first.task_id)).run == 2


async def test_a_result_is_adopted_after_the_task_is_final(build: Build) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    await build.done(dead(fence))
    assert await end(build.store, fence) == DONE
    assert (await only_step(build.store, fence.task_id)).state is StepState.DONE


async def test_a_late_result_is_adopted_by_a_step_that_failed_in_the_next_run(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    await end(build.store, second, status=EndStatus.FAILED)
    assert await end(build.store, first, b"late") == DONE
    assert await states_of(build.store, first.task_id) == [(1, 1, "answered")]


async def test_a_late_result_settles_the_doubt_of_the_run_that_repeated_the_step(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    await end(build.store, second, status=EndStatus.IN_DOUBT)
    assert await end(build.store, first, b"late") == DONE
    assert await states_of(build.store, first.task_id) == [(1, 1, "answered"), (2, 1, "repeated")]


async def test_a_result_that_the_application_found_out_reconciles_the_doubt(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second, on_doubt=OnDoubt.RECONCILE)
    assert await end(build.store, second, b"found") == DONE
    assert await states_of(build.store, first.task_id) == [(1, 1, "reconciled")]
    row = await only_step(build.store, first.task_id)
    assert (row.state, row.run, row.data) == (StepState.DONE, 2, b"found")
    assert await end(build.store, second, b"found") == DONE
    assert await end(build.store, first, b"late") == EndedStep(EndStatus.ALREADY, b"found", "json")
    assert await states_of(build.store, first.task_id) == [(1, 1, "paid_twice")]


async def test_a_failure_of_a_call_in_doubt_reconciles_it(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second, on_doubt=OnDoubt.RECONCILE)
    assert await end(build.store, first, status=EndStatus.FAILED) == EndedStep(EndStatus.FAILED)
    assert await states_of(build.store, first.task_id) == [(1, 1, "reconciled")]
    assert await begin(build.store, second) == BEGUN


async def test_a_failure_of_an_earlier_run_changes_nothing(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    before = await only_step(build.store, first.task_id)
    assert await end(build.store, first, status=EndStatus.FAILED) == EndedStep(EndStatus.FAILED)
    assert await only_step(build.store, first.task_id) == before
    await end(build.store, second, b"mine")
    for status in (EndStatus.FAILED, EndStatus.IN_DOUBT):
        assert await end(build.store, first, status=status) == EndedStep(EndStatus.ALREADY, b"mine", "json")
    assert await states_of(build.store, first.task_id) == [(1, 1, "repeated")]


async def test_a_failure_in_doubt_leaves_the_step_open_and_is_entered_at_once(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence, on_doubt=OnDoubt.ASK, upstream="openai")
    clock.advance(3)
    facts = {"cause": "the read timed out", "request_id": "req_9"}
    for _ in range(2):
        answer = await end(build.store, fence, status=EndStatus.IN_DOUBT, **facts)
        assert answer == EndedStep(EndStatus.IN_DOUBT)
    row = await only_step(build.store, fence.task_id)
    assert (row.state, row.ended_at) == (StepState.OPEN, None)
    (entry,) = await ledger(build.store, fence.task_id)
    assert (entry.state, entry.on_doubt, entry.cause, entry.upstream, entry.request_id, entry.sent_at) == (
        DoubtState.OPEN, OnDoubt.ASK, "the read timed out", "openai", "req_9", clock.now - 3,
    )  # fmt: skip
    assert await build.store.find_doubts() == 0
    assert (await begin(build.store, fence, attempt=2)).is_repeat
    (entry,) = await ledger(build.store, fence.task_id)
    assert (entry.state, entry.cause, entry.request_id) == (
        DoubtState.REPEATED, "the read timed out", "req_9",
    )  # fmt: skip


async def test_a_doubt_reported_by_an_earlier_run_adds_its_cause_to_the_entry(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    answer = await end(build.store, first, status=EndStatus.IN_DOUBT, cause="reset", request_id="r")
    assert answer == EndedStep(EndStatus.IN_DOUBT)
    (entry,) = await ledger(build.store, first.task_id)
    assert (entry.run, entry.state, entry.cause, entry.request_id) == (1, DoubtState.REPEATED, "reset", "r")
    assert (await only_step(build.store, first.task_id)).run == 2


async def test_a_step_that_does_not_exist_is_gone(build: Build) -> None:
    fence = (await build.run()).fence
    ends = [StepEnd(each, "k", 1, EndStatus.DONE, b"1") for each in (fence, Fence(UNKNOWN, 1), Fence("x", 1))]
    assert await build.store.end_steps(ends) == [EndedStep(EndStatus.GONE)] * 3
    assert await build.store.read_steps(fence.task_id) == []


async def test_two_runs_that_end_a_step_in_one_batch_get_one_result(build: Build) -> None:
    first, second = await superseded(build)
    await begin(build.store, second)
    ends = [StepEnd(fence, "k", 1, EndStatus.DONE, b"%d" % fence.run, "json") for fence in (second, first)]
    assert await build.store.end_steps(ends) == [DONE, EndedStep(EndStatus.ALREADY, b"2", "json")]


async def test_two_runs_that_end_a_step_at_the_same_moment_get_one_result(build: Build) -> None:
    for _ in range(10):
        first, second = await superseded(build)
        await begin(build.store, second)
        answers = await asyncio.gather(end(build.store, first, b"1"), end(build.store, second, b"2"))
        row = await only_step(build.store, first.task_id)
        assert sorted(answer.status.value for answer in answers) == ["already", "done"]
        assert {answer.data for answer in answers} == {b"", row.data}
        entries = {entry.run: entry.state.value for entry in await ledger(build.store, first.task_id)}
        assert entries == ({1: "answered", 2: "paid_twice"} if row.run == 1 else {1: "paid_twice"})
        await build.done(succeeded(second))


# --- reads and limits --------------------------------------------------------------------------------------


async def test_steps_are_read_in_the_order_in_which_they_were_first_begun(build: Build) -> None:
    fence = (await build.run()).fence
    keys = [f"{number * 7919 % 1000:03}" for number in range(1000)]
    for start in range(0, 1000, 250):
        batch = [StepBegin(fence, key, 1, "s") for key in keys[start : start + 250]]
        assert set(await build.store.begin_steps(batch)) == {BEGUN}
    ends = [StepEnd(fence, key, 1, EndStatus.DONE, key.encode(), "json") for key in keys]
    assert set(await build.store.end_steps(ends)) == {DONE}
    rows = await build.store.read_steps(fence.task_id)
    assert [(row.key, row.data) for row in rows] == [(key, key.encode()) for key in keys]


async def test_results_are_left_out_of_a_read_if_asked(build: Build) -> None:
    fence = (await build.run()).fence
    for key, data in (("a", b"123"), ("b", b"12345")):
        await begin(build.store, fence, key)
        await end(build.store, fence, data, key=key)
    await begin(build.store, fence, "c")

    async def found(**limits: Any) -> list[tuple[bytes | None, int]]:
        return [(row.data, row.size) for row in await build.store.read_steps(fence.task_id, **limits)]

    assert await found() == [(b"123", 3), (b"12345", 5), (None, 0)]
    assert await found(max_bytes=3) == [(b"123", 3), (None, 5), (None, 0)]
    assert await found(max_total_bytes=8) == [(b"123", 3), (b"12345", 5), (None, 0)]
    assert await found(max_total_bytes=7) == [(None, 3), (None, 5), (None, 0)]
    assert await found(max_bytes=3, max_total_bytes=3) == [(b"123", 3), (None, 5), (None, 0)]
    assert await found(with_data=False) == [(None, 3), (None, 5), (None, 0)]
    assert await build.store.read_steps(UNKNOWN) == await build.store.read_steps("x") == []


async def test_texts_that_a_store_refuses_are_written_readably_and_results_are_any_bytes(
    build: Build,
) -> None:
    fence = (await build.run()).fence
    odd = "a\0b\ud800"
    (answer,) = await build.store.begin_steps([StepBegin(fence, "k", 1, odd, upstream=odd)])
    assert answer == BEGUN
    await end(build.store, fence, status=EndStatus.IN_DOUBT, cause=odd, request_id=odd)
    (entry,) = await ledger(build.store, fence.task_id)
    shown = r"a\x00b\ud800"
    assert (entry.step, entry.cause, entry.upstream, entry.request_id) == (shown,) * 4
    data = bytes(range(256))
    await end(build.store, fence, data)
    assert (await only_step(build.store, fence.task_id)).data == data


async def test_a_step_that_cannot_be_stored_raises_a_content_error_and_writes_nothing(build: Build) -> None:
    fence = (await build.run()).fence
    with pytest.raises(CONTENT_ERRORS):
        await begin(build.store, fence._replace(run=2**80))
    with pytest.raises(CONTENT_ERRORS):
        await build.store.begin_steps([StepBegin(fence, "good", 1, "s"), StepBegin(fence, "bad", 2**80, "s")])
    assert await build.store.read_steps(fence.task_id) == []


# --- their lives -------------------------------------------------------------------------------------------


async def test_steps_stay_when_their_task_is_redriven_and_go_with_it(build: Build) -> None:
    fence = (await build.run(queue="main")).fence
    await begin(build.store, fence, "done")
    await end(build.store, fence, key="done")
    await begin(build.store, fence, "open")
    await build.done(dead(fence))
    await build.store.redrive([fence.task_id])
    second = (await build.claim(await build.worker()))[0].fence
    assert (await begin(build.store, second, "done")).status is BeginStatus.DONE
    assert (await begin(build.store, second, "open")).is_repeat
    await build.done(dead(second))
    await build.store.purge([fence.task_id])
    assert await build.store.read_steps(fence.task_id) == []
    assert await ledger(build.store, fence.task_id) == []
    assert await end(build.store, second, key="open") == EndedStep(EndStatus.GONE)
    await build.sound()


async def tokens_of(build: Build, fence: Fence) -> list[tuple[int | None, int | None]]:
    """Return the tokens in the entries of a task."""
    entries = await build.store.list_doubts(state=None, task_id=fence.task_id)
    return [(entry.input_tokens, entry.output_tokens) for entry in entries]


async def test_an_entry_has_the_tokens_that_are_known_of_its_call(build: Build) -> None:
    fence = (await build.run()).fence
    await begin(build.store, fence)
    await end(build.store, fence, status=EndStatus.IN_DOUBT, input_tokens=120, output_tokens=7)
    assert await tokens_of(build, fence) == [(120, 7)]
    second = await again(build, fence)
    await begin(build.store, second)
    assert await tokens_of(build, fence) == [(120, 7)]
    await end(build.store, second)
    assert await end(build.store, fence, b"late", input_tokens=120, output_tokens=300) == EndedStep(
        EndStatus.ALREADY, b"1", "json"
    )
    assert await tokens_of(build, fence) == [(120, 300)]


async def test_an_entry_of_a_killed_run_has_no_tokens_until_its_answer_comes(build: Build) -> None:
    first = (await build.run()).fence
    await begin(build.store, first)
    second = await again(build, first)
    await begin(build.store, second)
    assert await tokens_of(build, first) == [(None, None)]
    await end(build.store, first, b"late", input_tokens=10, output_tokens=0)
    assert await tokens_of(build, first) == [(10, 0)]
