"""The ledger of doubts: what it finds, what it lists, and what people decide."""

from __future__ import annotations

from typing import Any

import pytest
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.outcome import Fence
from tidegate.domain.states import State
from tidegate.domain.step import DoubtAnswer, DoubtState, OnDoubt, StepState
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    DoubtRow,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
)

UNKNOWN = "01890000-0000-7000-8000-000000000000"


async def open_step(build: Build, key: str = "k", **changes: Any) -> Fence:
    """Return a current run that has begun a step with `on_doubt="ask"`."""
    fence = (await build.run(**changes)).fence
    await build.store.begin_steps([StepBegin(fence, key, 1, f"step {key}", OnDoubt.ASK)])
    return fence


async def doubts(build: Build, count: int, **changes: Any) -> list[Fence]:
    """Return dead runs, each with a step in doubt that the ledger has."""
    fences = [await open_step(build, **changes) for _ in range(count)]
    await build.done(*map(dead, fences))
    assert await build.store.find_doubts() == count
    return fences


async def ids(store: Store, **changes: Any) -> list[int]:
    return [entry.id for entry in await store.list_doubts(**changes)]


async def entry_of(store: Store, fence: Fence) -> DoubtRow:
    (entry,) = await store.list_doubts(state=None, task_id=fence.task_id)
    return entry


async def step_state(store: Store, fence: Fence) -> StepState:
    (row,) = await store.read_steps(fence.task_id)
    return row.state


async def begin(store: Store, fence: Fence, key: str = "k") -> BegunStep:
    (answer,) = await store.begin_steps([StepBegin(fence, key, 1, "s", OnDoubt.ASK)])
    return answer


async def report(store: Store, fence: Fence, data: bytes) -> EndedStep:
    (answer,) = await store.end_steps([StepEnd(fence, "k", 1, EndStatus.DONE, data, "json")])
    return answer


async def redriven(build: Build, fence: Fence) -> Fence:
    """Send the task back to its queue; return its next run."""
    await build.store.redrive([fence.task_id])
    (task,) = await build.claim(await build.worker())
    return task.fence


# --- find --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [dead, succeeded, retrying])
async def test_an_open_step_is_in_doubt_once_its_run_is_over(
    build: Build, clock: SettableClock, end: Any
) -> None:
    fence = await open_step(build)
    sent_at = clock.now
    assert await build.store.find_doubts() == 0
    clock.advance(4)
    await build.done(end(fence))
    assert await build.store.find_doubts() == 1
    assert await build.store.find_doubts() == 0
    entry = await entry_of(build.store, fence)
    assert (entry.state, entry.cause) == (DoubtState.OPEN, "its run ended without an answer")
    assert (entry.run, entry.attempt, entry.sent_at, entry.found_at) == (1, 1, sent_at, clock.now)
    assert await step_state(build.store, fence) is StepState.OPEN


async def test_a_step_of_an_earlier_run_is_in_doubt_while_the_next_run_works(build: Build) -> None:
    fence = await open_step(build, queue="main")
    await build.done(retrying(fence, delay=0.0))
    await build.store.promote()
    (task,) = await build.claim(await build.worker())
    await begin(build.store, task.fence, "other")
    assert await build.store.find_doubts() == 1
    (entry,) = await build.store.list_doubts()
    assert (entry.key, entry.run) == ("k", 1)


async def test_doubts_are_found_in_parts(build: Build) -> None:
    fences = [await open_step(build) for _ in range(5)]
    await build.done(*map(dead, fences))
    assert [await build.store.find_doubts(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_ended_steps_are_never_in_doubt(build: Build) -> None:
    done, failed = await open_step(build), await open_step(build)
    await report(build.store, done, b"1")
    await build.store.end_steps([StepEnd(failed, "k", 1, EndStatus.FAILED)])
    await build.done(dead(done), dead(failed))
    assert await build.store.find_doubts() == 0


async def test_a_doubt_that_was_found_before_is_found_again_in_the_next_run(build: Build) -> None:
    (first,) = await doubts(build, 1, queue="main")
    second = await redriven(build, first)
    await build.store.begin_steps([StepBegin(second, "k", 1, "s", OnDoubt.REPEAT)])
    assert await build.store.find_doubts() == 0
    await build.done(dead(second))
    assert await build.store.find_doubts() == 1
    found = await build.store.list_doubts(state=None)
    assert [(entry.run, entry.state.value) for entry in found] == [(1, "repeated"), (2, "open")]


# --- list --------------------------------------------------------------------------------------------------


async def test_entries_are_listed_by_state_task_and_tenant_in_parts(build: Build) -> None:
    ours = await doubts(build, 3, tenant="acme", queue="llm")
    (theirs,) = await doubts(build, 1, tenant="other")
    all_ids = await ids(build.store)
    assert all_ids == sorted(all_ids)
    assert len(all_ids) == 4
    acme = await ids(build.store, tenant="acme")
    assert await ids(build.store, tenant="acme", limit=2) == acme[:2]
    assert await ids(build.store, tenant="acme", after=acme[1]) == acme[2:]
    assert await ids(build.store, after=10**30) == []
    assert await ids(build.store, task_id=theirs.task_id) == list(set(all_ids) - set(acme))
    assert await ids(build.store, task_id=theirs.task_id, tenant="acme") == []
    assert await ids(build.store, task_id=UNKNOWN) == await ids(build.store, task_id="nonsense") == []

    await build.store.resolve_doubts(acme[:1], DoubtAnswer.REJECT, by="ada")
    assert await ids(build.store, tenant="acme") == acme[1:]
    assert await ids(build.store, state=DoubtState.REJECTED) == acme[:1]
    assert await ids(build.store, state=None) == all_ids
    (entry,) = await build.store.list_doubts(task_id=ours[2].task_id)
    assert (entry.function, entry.queue, entry.tenant, entry.step) == ("app:work", "llm", "acme", "step k")


async def test_open_entries_that_wait_for_a_person_are_counted_by_task(build: Build) -> None:
    one, other = await doubts(build, 2)
    repeating = (await build.run()).fence
    begins = [
        StepBegin(repeating, key, 1, "s", on_doubt) for key, on_doubt in zip("abc", OnDoubt, strict=True)
    ]
    await build.store.begin_steps(begins)
    await build.done(dead(repeating))
    assert await build.store.find_doubts() == 3
    given = [one.task_id, other.task_id, repeating.task_id, UNKNOWN, "nonsense"]
    counts = {one.task_id: 1, other.task_id: 1, repeating.task_id: 1}
    assert await build.store.count_open_doubts(given) == counts
    await build.store.resolve_doubts([(await entry_of(build.store, one)).id], DoubtAnswer.REPEAT, by="ada")
    del counts[one.task_id]
    assert await build.store.count_open_doubts(given) == counts
    assert await build.store.count_open_doubts([]) == {}


# --- resolve -----------------------------------------------------------------------------------------------


async def resolve(build: Build, fence: Fence, answer: DoubtAnswer, **values: Any) -> ActionStatus:
    """Decide about the only entry of a task, as ada."""
    doubt_id = (await entry_of(build.store, fence)).id
    given = {"by": "ada", "note": "asked them"} | values
    return (await build.store.resolve_doubts([doubt_id], answer, **given))[doubt_id]


async def test_a_doubt_resolved_as_repeat_lets_the_next_run_begin_the_step(
    build: Build, clock: SettableClock
) -> None:
    (first,) = await doubts(build, 1, queue="main")
    clock.advance(1)
    assert await resolve(build, first, DoubtAnswer.REPEAT) is ActionStatus.DONE
    entry = await entry_of(build.store, first)
    assert (entry.state, entry.resolved_at, entry.resolved_by, entry.note) == (
        DoubtState.REPEATED, clock.now, "ada", "asked them",
    )  # fmt: skip
    assert await step_state(build.store, first) is StepState.FAILED
    assert await begin(build.store, await redriven(build, first)) == BegunStep(BeginStatus.BEGUN)
    assert (await entry_of(build.store, first)).state is DoubtState.REPEATED


async def test_a_result_that_comes_after_the_decision_to_repeat_is_adopted(build: Build) -> None:
    (first,) = await doubts(build, 1, queue="main")
    await resolve(build, first, DoubtAnswer.REPEAT)
    assert await report(build.store, first, b"late") == EndedStep(EndStatus.DONE)
    entry = await entry_of(build.store, first)
    assert (entry.state, entry.resolved_by) == (DoubtState.ANSWERED, "ada")
    assert (await begin(build.store, await redriven(build, first))).data == b"late"


async def test_an_accepted_result_is_that_of_the_step(build: Build) -> None:
    (first,) = await doubts(build, 1, queue="main")
    given = {"data": b'"paid"', "codec": "json"}
    assert await resolve(build, first, DoubtAnswer.ACCEPT, **given) is ActionStatus.DONE
    assert (await entry_of(build.store, first)).state is DoubtState.ACCEPTED
    second = await redriven(build, first)
    assert await begin(build.store, second) == BegunStep(BeginStatus.DONE, b'"paid"', "json")
    (row,) = await build.store.read_steps(first.task_id)
    assert (row.state, row.run, row.attempt) == (StepState.DONE, 1, 0)


async def test_a_result_that_comes_after_an_accepted_one_is_paid_twice(build: Build) -> None:
    (first,) = await doubts(build, 1)
    await resolve(build, first, DoubtAnswer.ACCEPT, data=b'"paid"', codec="json")
    for _ in range(2):
        answer = await report(build.store, first, b"late")
        assert answer == EndedStep(EndStatus.ALREADY, b'"paid"', "json")
    entry = await entry_of(build.store, first)
    assert (entry.state, entry.resolved_by, entry.note) == (DoubtState.PAID_TWICE, "ada", "asked them")


async def test_a_rejected_step_is_never_begun_again(build: Build) -> None:
    (first,) = await doubts(build, 1, queue="main")
    assert await resolve(build, first, DoubtAnswer.REJECT) is ActionStatus.DONE
    assert (await entry_of(build.store, first)).state is DoubtState.REJECTED
    second = await redriven(build, first)
    assert await begin(build.store, second) == BegunStep(BeginStatus.REJECTED)
    assert await report(build.store, first, b"late") == EndedStep(EndStatus.GONE)
    assert (await entry_of(build.store, first)).state is DoubtState.PAID_TWICE
    assert await step_state(build.store, first) is StepState.REJECTED
    failed = StepEnd(second, "k", 1, EndStatus.FAILED)
    assert await build.store.end_steps([failed]) == [EndedStep(EndStatus.FAILED)]


async def test_a_resent_decision_is_done_and_another_one_is_refused(
    build: Build, clock: SettableClock
) -> None:
    (first,) = await doubts(build, 1)
    await resolve(build, first, DoubtAnswer.REJECT)
    before = await entry_of(build.store, first)
    clock.advance(1)
    assert await resolve(build, first, DoubtAnswer.REJECT) is ActionStatus.DONE
    for answer, changes in ((DoubtAnswer.REPEAT, {}), (DoubtAnswer.REJECT, {"by": "bob"})):
        assert await resolve(build, first, answer, **changes) is ActionStatus.REFUSED
    assert await entry_of(build.store, first) == before
    assert await step_state(build.store, first) is StepState.REJECTED


async def test_a_doubt_that_resolved_itself_cannot_be_decided(build: Build) -> None:
    (first,) = await doubts(build, 1)
    await report(build.store, first, b"late")
    given = {"data": b"other", "codec": "json"}
    assert await resolve(build, first, DoubtAnswer.ACCEPT, **given) is ActionStatus.REFUSED
    (row,) = await build.store.read_steps(first.task_id)
    assert row.data == b"late"


async def test_entries_of_other_tenants_are_unknown(build: Build) -> None:
    (ours,) = await doubts(build, 1, tenant="acme")
    (theirs,) = await doubts(build, 1, tenant="other")
    our_id, their_id = [(await entry_of(build.store, fence)).id for fence in (ours, theirs)]
    given = [their_id, our_id, 10**30, 0, -1, their_id + 100]
    answers = await build.store.resolve_doubts(given, DoubtAnswer.REPEAT, by="ada", tenant="acme")
    assert answers == dict.fromkeys(given, ActionStatus.UNKNOWN) | {our_id: ActionStatus.DONE}
    assert (await entry_of(build.store, theirs)).state is DoubtState.OPEN
    assert await step_state(build.store, theirs) is StepState.OPEN
    assert await build.store.resolve_doubts([], DoubtAnswer.REPEAT, by="ada") == {}


async def test_a_decision_does_not_move_the_task_and_its_texts_are_stored_readably(build: Build) -> None:
    (first,) = await doubts(build, 1)
    await resolve(build, first, DoubtAnswer.REJECT, by="a\0", note="\ud800")
    entry = await entry_of(build.store, first)
    assert (entry.resolved_by, entry.note) == (r"a\x00", r"\ud800")
    assert await build.state(first.task_id) is State.DEAD


async def test_ids_of_deleted_entries_are_not_used_again(build: Build) -> None:
    (first,) = await doubts(build, 1)
    old = (await entry_of(build.store, first)).id
    await build.store.purge([first.task_id])
    assert await build.store.list_doubts(state=None) == []
    (second,) = await doubts(build, 1)
    assert (await entry_of(build.store, second)).id > old
