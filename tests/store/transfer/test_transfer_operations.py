"""Redrives and marks of failures move with the tasks: an open redrive goes on at the target."""

from __future__ import annotations

import pytest
from store_build import Build, dead, succeeded
from transfer_support import Move

from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.states import State
from tidegate.operations import bulk
from tidegate.store.failure_rows import MarkKind
from tidegate.store.history_rows import HistoryRange
from tidegate.store.operation_rows import LetterState, OperationState
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter

pytestmark = pytest.mark.anyio

FAILED = Failure(Verdict.PERMANENT, Reason.AUTH, "no key", error_class="app.NoKey")
LETTERS = 7


async def advance(store: Store, rounds: int = 8) -> None:
    """Take the next steps of all operations."""
    runner = OperationRunner(store)
    for _ in range(rounds):
        await runner.run_once()


async def succeed(build: Build, count: int) -> None:
    """Run tasks that succeed."""
    tasks = await build.claim(await build.worker(), count)
    assert len(tasks) == count
    await build.done(*(succeeded(task.fence) for task in tasks))


async def test_a_redrive_that_was_half_done_goes_on_at_the_target_and_completes(moving: Move) -> None:
    build = moving.before
    await build.worker(lease=5.0)
    tasks = await build.running(LETTERS, queue="main")
    await build.done(*(dead(task.fence, failure=FAILED) for task in tasks))
    moving.clock.advance(1.0)
    operation = await bulk.start_redrive(moving.old, TaskFilter(), by="ada", own=["app:work"])
    await advance(moving.old)
    await succeed(build, 2)
    halfway = await bulk.get_operation(moving.old, operation.id)
    assert (halfway.state, halfway.sent, halfway.succeeded) == (OperationState.CANARY, 5, 0)

    await moving.all(finished=False)

    arrived = await bulk.get_operation(moving.new, operation.id)
    assert (arrived.state, arrived.sent, arrived.succeeded) == (OperationState.CANARY, 5, 2)
    await moving.after.worker(lease=1e6)
    await succeed(moving.after, 3)
    await advance(moving.new)
    await succeed(moving.after, LETTERS - 5)
    await advance(moving.new)
    done = await bulk.get_operation(moving.new, operation.id)
    assert (done.state, done.sent, done.succeeded, done.died) == (OperationState.DONE, LETTERS, LETTERS, 0)
    letters = await moving.new.list_letters(operation.id, limit=20)
    assert {letter.state for letter in letters} == {LetterState.SUCCEEDED}
    assert {letter.task_id for letter in letters} == {task.fence.task_id for task in tasks}
    await moving.all(finished=False)
    assert await bulk.get_operation(moving.new, operation.id) == done


async def test_an_operation_that_still_chooses_by_its_filter_arrives_stopped(moving: Move) -> None:
    await moving.before.in_state(State.DEAD)
    moving.clock.advance(1.0)
    operation = await bulk.start_redrive(moving.old, TaskFilter(), by="ada", own=["app:work"])
    theirs = await moving.after.in_state(State.DEAD)

    await moving.all()
    await advance(moving.new)

    arrived = await bulk.get_operation(moving.new, operation.id)
    assert (arrived.state, arrived.sent) == (OperationState.STOPPED, 0)
    assert "moved to another database" in arrived.note
    assert await moving.after.state(theirs) is State.DEAD


async def test_marks_of_groups_of_failures_move_where_the_target_has_none(moving: Move) -> None:
    task = await moving.before.run()
    await moving.before.done(dead(task.fence, failure=FAILED))
    now = moving.clock.now
    (group,) = await moving.old.list_failure_groups(HistoryRange(now - 60.0, now + 60.0))
    await moving.old.mark_failure(group.fingerprint, MarkKind.MUTED, by="ada", note="known")

    await moving.all()

    (mark,) = await moving.new.list_failure_marks()
    assert (mark.fingerprint, mark.kind, mark.note) == (group.fingerprint, MarkKind.MUTED, "known")
    assert await moving.new.find_fingerprints(group.fingerprint[:6]) == [group.fingerprint]
