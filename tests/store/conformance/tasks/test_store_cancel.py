"""Cancelling: the returned status is true at any moment of a task's life."""

from __future__ import annotations

import asyncio
import random

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, ids_of, retrying, succeeded

from tidegate.domain.outcome import Cancelled, Fence, FinishStatus
from tidegate.domain.states import FINAL, State
from tidegate.store.protocol import Store
from tidegate.store.rows import CancelRequest, CancelStatus

CANCELLED, ASKED, FINISHED, UNKNOWN = CancelStatus


@pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RETRYING])
async def test_a_task_that_is_not_running_is_cancelled_at_once_and_never_runs(
    build: Build, clock: SettableClock, state: State
) -> None:
    task_id = await build.in_state(state)
    clock.advance(1)
    assert await build.store.cancel([task_id], why="not wanted") == {task_id: CANCELLED}
    row = await build.row(task_id)
    assert (row.state, row.finished_at) == (State.CANCELLED, START + 1)
    result = await build.store.get_result(task_id)
    assert result is not None
    assert (result.state, result.reason, result.message) == (State.CANCELLED, "cancelled", "not wanted")
    clock.advance(10_000)
    await build.store.promote()
    assert await build.claim(await build.worker()) == []


@pytest.mark.parametrize("state", sorted(FINAL))
async def test_a_cancel_does_not_change_a_final_task(build: Build, state: State) -> None:
    task_id = await build.in_state(state)
    assert await build.store.cancel([task_id]) == {task_id: FINISHED}
    assert await build.state(task_id) is state


async def test_a_cancel_of_a_running_task_reaches_its_worker(build: Build) -> None:
    worker, other = await build.worker(), await build.worker()
    mine = await build.run(worker=worker)
    await build.run(worker=other)
    task_id = mine.fence.task_id
    assert await build.store.list_cancel_requests(worker) == []
    assert await build.store.cancel([task_id]) == {task_id: ASKED}
    assert await build.store.cancel([task_id]) == {task_id: ASKED}
    assert await build.store.list_cancel_requests(worker) == [CancelRequest(mine.fence, force=False)]
    assert await build.store.list_cancel_requests(other) == []
    row = await build.row(task_id)
    assert (row.state, row.cancel_requested) == (State.RUNNING, True)
    assert await build.store.cancel([task_id], force=True) == {task_id: ASKED}
    assert await build.store.cancel([task_id]) == {task_id: ASKED}
    assert await build.store.list_cancel_requests(worker) == [CancelRequest(mine.fence, force=True)]
    await build.done(Cancelled(mine.fence))
    assert await build.store.list_cancel_requests(worker) == []
    assert await build.store.cancel([task_id]) == {task_id: FINISHED}


async def test_each_id_gets_its_own_status(build: Build) -> None:
    ready, running, done = [await build.in_state(state) for state in (State.READY, State.RUNNING, State.DEAD)]
    ids = [ready, build.id(), running, "nonsense", done, "", "\ud800", ready]
    answers = await build.store.cancel(ids)
    assert answers == {
        ready: CANCELLED, ids[1]: UNKNOWN, running: ASKED, "nonsense": UNKNOWN, done: FINISHED, "": UNKNOWN,
        "\ud800": UNKNOWN,
    }  # fmt: skip
    assert await build.store.cancel([]) == {}


async def test_the_reason_of_a_cancel_may_be_any_text(build: Build) -> None:
    task_id = await build.one()
    await build.store.cancel([task_id], why="\ud800\x00")
    assert [entry.why for entry in await build.store.get_history(task_id)] == ["", "\\ud800\\x00"]


async def test_tasks_cancelled_while_no_worker_runs_never_run(
    build: Build, clients: Clients, clock: SettableClock
) -> None:
    ids = await build.enqueue(100)
    for task_id in ids[:25]:
        await build.store.cancel([task_id])
    await build.store.cancel(ids[25:50])
    await build.store.close()  # the store restarts
    async with opened(clients) as later:
        again = Build(later, clock)
        assert ids_of(await again.claim(await again.worker(), 200)) == ids[50:]


async def test_a_cancelled_task_waiting_for_a_retry_keeps_its_history(
    build: Build, clock: SettableClock
) -> None:
    task_id = await build.in_state(State.RETRYING)
    clock.advance(1)
    await build.store.cancel([task_id])
    assert [entry.kind for entry in await build.store.get_history(task_id)] == [
        "enqueued",
        "run",
        "cancel requested",
    ]
    row = await build.row(task_id)
    assert (row.run, row.started_at) == (1, START)


async def test_a_task_with_a_requested_cancel_does_not_run_again_after_its_worker_is_lost(
    build: Build, clock: SettableClock
) -> None:
    [task] = await build.orphaned()
    await build.store.cancel([task.fence.task_id])
    await build.done(retrying(task.fence, delay=0.0))
    clock.advance(10)
    assert await build.store.promote() == 0
    assert await build.state(task.fence.task_id) is State.CANCELLED


async def test_the_status_of_a_cancel_agrees_with_the_outcome_at_any_moment(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    """Many tries with two clients: one works, one cancels at a random moment around start, end and retry."""
    rng = random.Random(55)
    worker_side, people = Build(store, clock), Build(twin, clock)
    worker = await worker_side.worker()
    answers: dict[str, CancelStatus] = {}
    ended: dict[str, list[str]] = {}
    ids = await worker_side.enqueue(400)
    running: list[str] = []
    answered = asyncio.Event()

    async def work() -> None:
        while tasks := await worker_side.claim(worker, rng.randint(1, 9)):
            running[:] = [task.fence.task_id for task in tasks]
            await _pause(rng)
            if rng.random() < 0.5 and len(answers) < len(ids):  # some cancels come while these run
                answered.clear()
                await answered.wait()
            outcomes = [
                succeeded(task.fence) if rng.random() < 0.5 else retrying(task.fence, delay=0.0)
                for task in tasks
            ]
            running.clear()
            for outcome, answer in zip(outcomes, await store.finish(outcomes), strict=True):
                assert answer is FinishStatus.DONE
                ended.setdefault(outcome.fence.task_id, []).append(type(outcome).__name__)
            clock.advance(0.01)
            await store.promote()

    async def cancel() -> None:
        order = ids[:]
        rng.shuffle(order)
        while order:
            if rng.random() < 0.5:  # one of those that run now comes first
                order.sort(key=running.__contains__)
            some = [order.pop() for _ in range(min(len(order), rng.randint(1, 9)))]
            answers.update(await people.store.cancel(some))
            answered.set()
            await _pause(rng)

    working = asyncio.create_task(work())
    await cancel()
    await working
    rows = await store.read_tasks(ids)
    for task_id in ids:
        state, reported = rows[task_id].state, ended.get(task_id, [])
        assert reported.count("Succeeded") <= 1
        if answers[task_id] is CANCELLED:
            assert state is State.CANCELLED
            assert "Succeeded" not in reported
        elif answers[task_id] is FINISHED:
            assert (state, reported[-1]) == (State.SUCCEEDED, "Succeeded")
        else:
            assert answers[task_id] is ASKED
            assert state is (State.SUCCEEDED if reported[-1] == "Succeeded" else State.CANCELLED)
    assert len(set(answers.values())) == 3, "the moments were not spread over the tasks' lives"
    assert await store.check_integrity() == []


async def _pause(rng: random.Random) -> None:
    for _ in range(rng.randint(0, 3)):
        await asyncio.sleep(0)


async def test_a_requested_cancel_frees_no_name_of_the_running_task(build: Build) -> None:
    task = await build.run(unique="u")
    await build.store.cancel([task.fence.task_id])
    assert not (await build.store.enqueue([build.new(unique="u")]))[0].created
    await build.done(Cancelled(Fence(task.fence.task_id, 1)))
    assert (await build.store.enqueue([build.new(unique="u")]))[0].created
