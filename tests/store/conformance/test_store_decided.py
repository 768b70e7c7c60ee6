"""Dead letters in doubt: which of them a redrive leaves out, and which go on by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from store_build import FAILED, Build, SettableClock, dead

from tidegate.deadletter.decided import DoubtJob, redrive_decided
from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Fence
from tidegate.domain.states import State
from tidegate.domain.step import DoubtAnswer, DoubtState, OnDoubt, StepState
from tidegate.errors import NotAcceptedError
from tidegate.operations import bulk
from tidegate.store.operation_rows import RedriveSettings
from tidegate.store.rows import ActionStatus, TaskFilter
from tidegate.store.step_rows import EndStatus, StepBegin, StepEnd

FUNCTION = "app:work"
IN_DOUBT = Failure(Verdict.PERMANENT, Reason.IN_DOUBT, "step 'k' may have been done", "StepInDoubtError")
REPEATING = RedriveSettings(repeats_doubts=True)


async def letter(
    build: Build, *keys: str, failure: Failure = IN_DOUBT, on_doubt: OnDoubt = OnDoubt.ASK, **changes: Any
) -> Fence:
    """Return the run of a task that died with these steps open."""
    fence = (await build.run(**{"queue": "main", "function": FUNCTION} | changes)).fence
    await build.store.begin_steps([StepBegin(fence, key, 1, key, on_doubt, "acme") for key in keys])
    await build.done(dead(fence, failure=failure))
    await build.store.find_doubts()
    return fence


async def entries(build: Build, fence: Fence) -> dict[str, tuple[int, DoubtState]]:
    rows = await build.store.list_doubts(state=None, task_id=fence.task_id)
    return {row.key: (row.id, row.state) for row in rows}


async def decide(build: Build, fence: Fence, key: str, by: str = "ada") -> None:
    """Let a person decide that the step is repeated."""
    doubt_id, _ = (await entries(build, fence))[key]
    await build.store.resolve_doubts([doubt_id], DoubtAnswer.REPEAT, by=by)


async def step_states(build: Build, fence: Fence) -> dict[str, StepState]:
    return {row.key: row.state for row in await build.store.read_steps(fence.task_id)}


# --- letters that go on -------------------------------------------------------------------------------------


async def test_a_letter_goes_on_when_its_last_doubt_is_decided(build: Build, clock: SettableClock) -> None:
    fence = await letter(build, "a", "b")
    await decide(build, fence, "a", by="bob")
    assert await redrive_decided(build.store) == []
    clock.advance(1)
    await decide(build, fence, "b")
    assert await redrive_decided(build.store) == [fence.task_id]
    assert await build.state(fence.task_id) is State.READY
    history = await build.store.get_history(fence.task_id)
    assert history[-1].kind == "redriven"
    assert history[-1].why == "every doubt is decided, the last by ada"
    assert (await build.row(fence.task_id)).counters.attempts == 0
    assert await redrive_decided(build.store) == []


async def test_maintenance_redrives_what_a_killed_command_has_only_decided(build: Build) -> None:
    fence = await letter(build, "a")
    await decide(build, fence, "a")
    assert await DoubtJob(build.store).run_once() is False
    assert await build.state(fence.task_id) is State.READY


async def test_a_late_answer_lets_the_letter_go_on(build: Build, clock: SettableClock) -> None:
    fence = await letter(build, "a")
    clock.advance(1)
    await build.store.end_steps([StepEnd(fence, "a", 1, EndStatus.DONE, b"1", "json")])
    assert await redrive_decided(build.store, [fence.task_id]) == [fence.task_id]
    assert (await build.store.get_history(fence.task_id))[-1].why.endswith("the last by a late answer")


async def test_a_letter_that_died_of_a_doubt_again_waits_for_the_next_decision(
    build: Build, clock: SettableClock
) -> None:
    fence = await letter(build, "a")
    await decide(build, fence, "a")
    clock.advance(1)
    await redrive_decided(build.store)
    (task,) = await build.claim(await build.worker())
    await build.done(dead(task.fence, failure=IN_DOUBT))
    assert await redrive_decided(build.store) == []
    assert await build.state(fence.task_id) is State.DEAD


async def test_letters_that_died_of_something_else_stay(build: Build) -> None:
    fence = await letter(build, "a", failure=FAILED)
    await decide(build, fence, "a")
    unexplained = await letter(build)
    assert await redrive_decided(build.store) == []
    assert await build.state(fence.task_id) is State.DEAD
    assert await build.state(unexplained.task_id) is State.DEAD


async def test_more_letters_than_a_page_go_on(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.deadletter.decided.PAGE_SIZE", 2)
    fences = [await letter(build, "a") for _ in range(5)]
    for fence in fences:
        await decide(build, fence, "a")
    assert sorted(await redrive_decided(build.store)) == sorted(fence.task_id for fence in fences)


async def test_a_letter_whose_unique_name_is_taken_waits_and_does_not_stop_the_others(build: Build) -> None:
    held = await letter(build, "a", unique="one")
    other = await letter(build, "a")
    (holder,) = await build.enqueue(unique="one", queue="main", function=FUNCTION)
    for fence in (held, other):
        await decide(build, fence, "a")
    assert await redrive_decided(build.store) == [other.task_id]
    await build.store.cancel([holder])
    assert await redrive_decided(build.store) == [held.task_id]


# --- redrives by people -------------------------------------------------------------------------------------


async def test_letters_with_an_open_step_are_in_doubt_whatever_they_died_of(build: Build) -> None:
    plain = await letter(build, failure=FAILED)
    in_doubt = await letter(build, "a", failure=FAILED, on_doubt=OnDoubt.REPEAT)
    died_of_it = await letter(build, "a")
    running = (await build.run(queue="main", function=FUNCTION)).fence
    await build.store.begin_steps([StepBegin(running, "a", 1, "a")])
    given = [fence.task_id for fence in (plain, in_doubt, died_of_it, running)]
    assert sorted(await build.store.find_letters_in_doubt([*given, "x"])) == sorted(given[1:3])
    assert await build.store.find_letters_in_doubt([]) == []
    assert await build.store.count_dead_letters(TaskFilter(), in_doubt=True) == 2
    assert await build.store.count_dead_letters(TaskFilter(queue="other"), in_doubt=True) == 0
    await decide(build, in_doubt, "a")
    assert await build.store.find_letters_in_doubt(given) == [died_of_it.task_id]


async def test_a_redrive_by_filter_leaves_letters_in_doubt_out(build: Build, clock: SettableClock) -> None:
    plain = await letter(build, failure=FAILED)
    in_doubt = await letter(build, "a", failure=FAILED)
    clock.advance(1)
    planned = await bulk.preview_redrive(build.store, TaskFilter())
    assert (planned.letters, planned.in_doubt) == (1, 1)
    operation = await bulk.start_redrive(build.store, TaskFilter(), by="ada", own=(FUNCTION,))
    runner = OperationRunner(build.store)
    while await runner.run_once():
        pass
    assert await build.state(plain.task_id) is State.READY
    assert await build.state(in_doubt.task_id) is State.DEAD
    (skipped,) = [row for row in await build.store.list_letters(operation.id) if row.state == "skipped"]
    assert (skipped.task_id, skipped.why) == (in_doubt.task_id, "its call may have been processed")


async def test_one_letter_in_doubt_is_refused_until_its_doubts_are_to_be_repeated(build: Build) -> None:
    fence = await letter(build, "a", "b", failure=FAILED)
    with pytest.raises(NotAcceptedError, match="1 dead letter made calls that may have been processed"):
        await bulk.redrive_ids(build.store, [fence.task_id], (FUNCTION,), by="ada")
    assert await build.state(fence.task_id) is State.DEAD
    operation_id, answers = await bulk.redrive_ids(
        build.store, [fence.task_id], (FUNCTION,), by="ada", settings=REPEATING
    )
    assert answers == {fence.task_id: ActionStatus.DONE}
    assert {key: state for key, (_, state) in (await entries(build, fence)).items()} == {
        "a": DoubtState.REPEATED,
        "b": DoubtState.REPEATED,
    }
    assert set((await step_states(build, fence)).values()) == {StepState.FAILED}
    first, *_ = await build.store.list_doubts(state=None, task_id=fence.task_id)
    assert (first.resolved_by, first.note) == ("ada", f"operation {operation_id}")


async def test_a_doubt_that_maintenance_has_not_found_yet_is_entered_as_repeated(build: Build) -> None:
    fence = (await build.run(queue="main", function=FUNCTION)).fence
    await build.store.begin_steps([StepBegin(fence, "a", 1, "a")])
    await build.done(dead(fence))
    await bulk.redrive_ids(build.store, [fence.task_id], (FUNCTION,), by="ada", settings=REPEATING)
    assert (await entries(build, fence))["a"][1] is DoubtState.REPEATED
    assert await build.store.find_doubts() == 0


async def test_undoing_such_a_redrive_opens_its_doubts_again(build: Build) -> None:
    fence = await letter(build, "a", "b")
    await decide(build, fence, "a", by="bob")
    operation_id, _ = await bulk.redrive_ids(
        build.store, [fence.task_id], (FUNCTION,), by="ada", settings=REPEATING
    )
    await bulk.undo(build.store, operation_id, by="ada")
    assert await build.state(fence.task_id) is State.DEAD
    assert {key: state for key, (_, state) in (await entries(build, fence)).items()} == {
        "a": DoubtState.REPEATED,
        "b": DoubtState.OPEN,
    }
    assert await step_states(build, fence) == {"a": StepState.FAILED, "b": StepState.OPEN}
    assert await redrive_decided(build.store) == []


# --- lists --------------------------------------------------------------------------------------------------


async def test_doubts_are_listed_by_function_upstream_and_age(build: Build, clock: SettableClock) -> None:
    old = await letter(build, "a")
    clock.advance(100)
    new = await letter(build, "a")

    async def found(**which: Any) -> list[str]:
        return [row.task_id for row in await build.store.list_doubts(**which)]

    assert await found(function="app:other") == []
    assert await found(function=FUNCTION) == [old.task_id, new.task_id]
    assert await found(upstream="acme") == [old.task_id, new.task_id]
    assert await found(upstream="other") == []
    assert await found(sent_before=clock.now) == [old.task_id]
    assert await found(sent_before=clock.now, task_id=new.task_id) == []
    first, _ = await build.store.list_doubts()
    assert await found(function=FUNCTION, state=None, after=first.id) == [new.task_id]
