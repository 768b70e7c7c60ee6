"""The fence: no write of a worker for a run that is no longer current is accepted."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from store_build import Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Dead, Fence, FinishStatus, Outcome, Released, Retrying
from tidegate.domain.states import State
from tidegate.store.rows import ClaimedTask, ProgressUpdate

CRASHED = Failure(Verdict.UNKNOWN, Reason.CRASH, message="its worker was lost")

LATE: dict[str, Callable[[Fence], Outcome]] = {
    "success": lambda fence: succeeded(fence, b'"late"'),
    "retry": retrying,
    "park": lambda fence: retrying(fence, charge=Charge.PARK),
    "release at shutdown": lambda fence: Released(fence, "shutdown"),
    "failure": dead,
    "cancel": Cancelled,
}


def reaped(fence: Fence) -> Retrying:
    """Return the outcome that the reaper writes for an orphan."""
    return Retrying(fence, CRASHED, 0.0, Charge.LOSS, 0.0, "its worker was lost")


async def taken_over(
    build: Build, clock: SettableClock, *, same_worker: bool = False
) -> tuple[Fence, ClaimedTask, str]:
    """Let A pause, reap its run and let B claim the task; return A's fence, B's task and B's id."""
    a = await build.worker()
    old = (await build.run(queue="q", worker=a)).fence
    b = a
    if same_worker:
        await build.done(reaped(old))
    else:
        await build.store.retire_worker(a, why="lease ran out", is_loss=True, only_if_expired=False)
        await build.done(reaped(old))
        b = await build.worker()
    clock.advance(1)
    await build.store.promote()
    [task] = await build.claim(b, queues=("q",))
    assert task.fence == Fence(old.task_id, 2)
    return old, task, b


@pytest.mark.parametrize("same_worker", [False, True], ids=["another worker", "the same worker"])
@pytest.mark.parametrize("late", LATE)
async def test_a_late_finish_is_fenced_during_the_next_run(
    build: Build, clock: SettableClock, late: str, same_worker: bool
) -> None:
    old, new, _ = await taken_over(build, clock, same_worker=same_worker)
    before = await build.row(old.task_id), await build.store.get_history(old.task_id)
    assert await build.store.finish([LATE[late](old)]) == [FinishStatus.FENCED]
    assert (await build.row(old.task_id), await build.store.get_history(old.task_id)) == before
    await build.done(succeeded(new.fence, b'"B"'))
    result = await build.store.get_result(old.task_id)
    assert result is not None
    assert result.data == b'"B"'


@pytest.mark.parametrize("late", LATE)
async def test_a_late_finish_is_fenced_after_the_next_run_has_ended(
    build: Build, clock: SettableClock, late: str
) -> None:
    old, new, _ = await taken_over(build, clock)
    await build.done(succeeded(new.fence, b'"B"'))
    before = await build.row(old.task_id), await build.store.get_history(old.task_id)
    assert await build.store.finish([LATE[late](old)]) == [FinishStatus.FENCED]
    result = await build.store.get_result(old.task_id)
    assert result is not None
    assert result.data == b'"B"'
    assert (await build.row(old.task_id), await build.store.get_history(old.task_id)) == before


@pytest.mark.parametrize("late", LATE)
async def test_a_late_finish_is_fenced_while_the_task_waits_for_its_next_run(build: Build, late: str) -> None:
    [task] = await build.orphaned()
    await build.done(reaped(task.fence))
    before = await build.row(task.fence.task_id)
    assert await build.store.finish([LATE[late](task.fence)]) == [FinishStatus.FENCED]
    assert await build.row(task.fence.task_id) == before


async def test_a_late_finish_like_the_reapers_but_with_other_texts_is_fenced(build: Build) -> None:
    [released, dead_tasks] = await build.orphaned(2)
    await build.done(
        Released(released.fence, "its neighbour crashed"),
        Dead(dead_tasks.fence, CRASHED, Charge.CRASH, "crash limit"),
    )
    answers = await build.store.finish(
        [
            Released(released.fence, "shutdown"),
            Dead(dead_tasks.fence, CRASHED, Charge.ATTEMPT, "attempts are spent"),
        ]
    )
    assert answers == [FinishStatus.FENCED, FinishStatus.FENCED]


async def test_late_progress_is_refused_and_its_fence_returned(build: Build, clock: SettableClock) -> None:
    old, new, _ = await taken_over(build, clock)
    await build.store.save_progress([ProgressUpdate(new.fence, 1, 10, "new")])
    assert await build.store.save_progress([ProgressUpdate(old, 9, 10, "old")]) == [old]
    row = await build.row(old.task_id)
    assert (row.progress_done, row.progress_note) == (1, "new")


async def test_a_late_heartbeat_is_refused_and_the_worker_id_returned(
    build: Build, clock: SettableClock
) -> None:
    a = await build.worker(lease=5.0)
    clock.advance(5)
    assert await build.store.retire_worker(a, why="lease ran out", is_loss=True, only_if_expired=True)
    assert await build.store.extend_leases([a], 5.0) == {a}
    assert not (await build.store.claim(build.request(a))).is_alive


async def test_a_release_by_an_old_run_does_not_end_the_new_one(build: Build, clock: SettableClock) -> None:
    old, new, b = await taken_over(build, clock)
    assert await build.store.finish([Released(old, "shutdown")]) == [FinishStatus.FENCED]
    row = await build.row(old.task_id)
    assert (row.state, row.run, row.worker_id) == (State.RUNNING, 2, b)
    assert await build.store.save_progress([ProgressUpdate(new.fence, 1, None)]) == []


async def test_a_finish_of_a_run_that_does_not_exist_is_fenced(build: Build) -> None:
    fence = (await build.run()).fence
    for run in (0, -1, 2, 10**6):
        assert await build.store.finish([succeeded(Fence(fence.task_id, run))]) == [FinishStatus.FENCED]
    assert await build.state(fence.task_id) is State.RUNNING


async def test_the_reaper_never_changes_a_finished_task(build: Build) -> None:
    """1,000 races: the reaper reads, the worker finishes (or not, or later), the reaper writes."""
    rng = random.Random(24)
    reaper_lost = worker_lost = 0
    for _ in range(10):
        tasks = await build.orphaned(100)
        orphans = {orphan.fence for orphan in await build.store.list_orphans()}
        assert orphans == {task.fence for task in tasks}
        fences = [task.fence for task in tasks]
        early = set(rng.sample(fences, 50))
        assert set(await build.store.finish([succeeded(fence) for fence in fences if fence in early])) == {
            FinishStatus.DONE
        }
        answers = dict(
            zip(fences, await build.store.finish([reaped(fence) for fence in fences]), strict=True)
        )
        late = await build.store.finish([succeeded(fence) for fence in fences if fence not in early])
        assert {answers[fence] for fence in early} == {FinishStatus.FENCED}
        assert {answers[fence] for fence in fences if fence not in early} == {FinishStatus.DONE}
        assert set(late) == {FinishStatus.FENCED}
        states = await build.states([fence.task_id for fence in fences])
        for fence in fences:
            expected = State.SUCCEEDED if fence in early else State.RETRYING
            assert states[fence.task_id] is expected
        reaper_lost += len(early)
        worker_lost += len(late)
        assert await build.store.list_orphans() == []
    assert (reaper_lost, worker_lost) == (500, 500)


async def test_orphans_are_found_behind_any_number_of_live_runs(build: Build) -> None:
    alive = await build.worker()
    for _ in range(4):
        await build.running(500, worker=alive)
    [task] = await build.orphaned()
    assert [orphan.fence for orphan in await build.store.list_orphans(limit=1)] == [task.fence]
