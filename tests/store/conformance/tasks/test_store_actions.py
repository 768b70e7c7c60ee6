"""Actions on waiting tasks: reprioritise and run now."""

from __future__ import annotations

import pytest
from store_build import START, Build, SettableClock, ids_of

from tidegate.domain.spec import Priority
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import ActionStatus

DONE, REFUSED, UNKNOWN = ActionStatus
WAITING = [State.SCHEDULED, State.READY, State.RETRYING]


@pytest.mark.parametrize("state", WAITING)
async def test_a_waiting_task_can_get_another_priority(
    build: Build, clock: SettableClock, state: State
) -> None:
    task_id = await build.in_state(state)
    assert await build.store.reprioritise([task_id], Priority.INTERACTIVE) == {task_id: DONE}
    assert (await build.row(task_id)).priority is Priority.INTERACTIVE
    assert await build.state(task_id) is state
    clock.advance(10_000)
    await build.store.promote()
    assert [task.priority for task in await build.claim(await build.worker())] == [Priority.INTERACTIVE]
    entry = [entry for entry in await build.store.get_history(task_id) if entry.kind == "priority changed"]
    assert [act.why for act in entry] == ["to interactive"]


@pytest.mark.parametrize("state", [State.RUNNING, *sorted(FINAL)])
async def test_a_running_or_final_task_keeps_its_priority(build: Build, state: State) -> None:
    task_id = await build.in_state(state)
    assert await build.store.reprioritise([task_id], Priority.BULK) == {task_id: REFUSED}
    assert (await build.row(task_id)).priority is Priority.NORMAL


async def test_a_task_with_raised_priority_runs_next_and_a_lowered_one_last(build: Build) -> None:
    ids = await build.enqueue(5)
    await build.store.reprioritise([ids[3]], Priority.INTERACTIVE)
    await build.store.reprioritise([ids[0]], Priority.BULK)
    assert ids_of(await build.claim(await build.worker())) == [ids[3], ids[1], ids[2], ids[4], ids[0]]


async def test_the_rank_stays_when_the_priority_changes(build: Build, clock: SettableClock) -> None:
    older = await build.one(priority=Priority.BULK)
    clock.advance(5)
    younger = await build.one()
    await build.store.reprioritise([older], Priority.NORMAL)
    assert ids_of(await build.claim(await build.worker())) == [older, younger]


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRYING])
async def test_run_now_makes_a_waiting_task_ready(build: Build, clock: SettableClock, state: State) -> None:
    task_id = await build.in_state(state)
    clock.advance(1)
    assert await build.store.run_now([task_id]) == {task_id: DONE}
    row = await build.row(task_id)
    assert (row.state, row.due_at) == (State.READY, START + 1)
    run = row.run
    [task] = await build.claim(await build.worker())
    assert task.fence.run == run + 1
    assert "run now" in [entry.kind for entry in await build.store.get_history(task_id)]


async def test_run_now_leaves_a_ready_task_ready(build: Build) -> None:
    task_id = await build.one()
    assert await build.store.run_now([task_id]) == {task_id: DONE}
    assert [entry.kind for entry in await build.store.get_history(task_id)] == ["enqueued"]


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_run_now_changes_a_task_of_a_committed_batch_at_most_once(build: Build, delay: float) -> None:
    task = build.new(delay_seconds=delay)
    await build.store.enqueue_part("s", [task])
    await build.store.commit_batch("s")
    for _ in range(2):
        assert await build.store.run_now([task.id]) == {task.id: DONE}
        assert (await build.row(task.id)).state is State.READY
    kinds = [entry.kind for entry in await build.store.get_history(task.id)]
    assert kinds == (["enqueued", "run now"] if delay else ["enqueued"])


@pytest.mark.parametrize("state", [State.RUNNING, *sorted(FINAL)])
async def test_run_now_refuses_a_running_or_final_task(build: Build, state: State) -> None:
    task_id = await build.in_state(state)
    assert await build.store.run_now([task_id]) == {task_id: REFUSED}
    assert await build.state(task_id) is state


async def test_run_now_keeps_a_better_rank_of_a_retry(build: Build, clock: SettableClock) -> None:
    late = await build.in_state(State.SCHEDULED)
    clock.advance(1)
    await build.store.run_now([late])
    clock.advance(1)
    younger = await build.one()
    assert ids_of(await build.claim(await build.worker())) == [late, younger]


async def test_each_id_gets_its_own_status(build: Build) -> None:
    ready, running = await build.in_state(State.READY), await build.in_state(State.RUNNING)
    ids = [running, "nonsense", ready, build.id()]
    expected = {running: REFUSED, "nonsense": UNKNOWN, ready: DONE, ids[3]: UNKNOWN}
    assert await build.store.reprioritise(ids, Priority.BULK) == expected
    assert await build.store.run_now(ids) == expected
    assert await build.store.run_now([]) == {}
