"""Runs start in groups, one per turn of the loop, so that a large claim delays nothing else."""

from __future__ import annotations

import asyncio
import gc

import pytest
from executor_setup import Scene

from tidegate.context import StopReason
from tidegate.domain.outcome import Cancelled, Released, Succeeded
from tidegate.worker.engine.executor import MAX_STARTED_PER_TURN
from tidegate.worker.engine.task_run import TaskRun

pytestmark = pytest.mark.anyio

HOLDS = float("inf")


@pytest.fixture
def begun(scene: Scene) -> list[int]:
    """The numbers of the functions that have started."""
    scene.lease.renew(HOLDS)
    begun: list[int] = []

    @scene.app.task(name="body")
    async def body(number: int) -> None:
        begun.append(number)

    return begun


async def all_ended(scene: Scene, number: int) -> None:
    async with asyncio.timeout(20):
        while len(scene.outcomes) < number:
            await asyncio.sleep(0)


async def test_task_functions_start_in_claim_order_and_only_some_in_each_loop_turn(
    scene: Scene, begun: list[int]
) -> None:
    number, in_turns = 5 * MAX_STARTED_PER_TURN + 1, []
    for one in range(number):
        scene.start("body", one)
    assert scene.executor.not_started == scene.executor.busy == number
    while len(scene.outcomes) < number:
        before = len(begun)
        await asyncio.sleep(0)
        in_turns.append(len(begun) - before)
    assert begun == list(range(number))
    assert max(in_turns) == MAX_STARTED_PER_TURN
    assert scene.executor.not_started == scene.executor.busy == 0
    assert all(isinstance(outcome, Succeeded) for outcome in scene.outcomes)


@pytest.mark.parametrize(
    ("why", "outcome"),
    [(StopReason.RELEASE, Released), (StopReason.CANCEL, Cancelled), (StopReason.LOST, type(None))],
)
async def test_a_run_stopped_before_its_turn_never_starts_and_frees_its_slot(
    scene: Scene, begun: list[int], why: StopReason, outcome: type
) -> None:
    before_write, second = scene.start("body", 1), scene.start("body", 2)
    scene.executor.stop(before_write, why)
    assert [type(one) for one in scene.outcomes] == [outcome]
    assert list(scene.executor.running) == [second.claimed.fence]
    await all_ended(scene, 2)
    assert begun == [2]


async def test_a_cancel_by_force_before_its_turn_counts_once(scene: Scene, begun: list[int]) -> None:
    task_run = scene.start("body", 1)
    scene.executor.force(task_run)
    scene.executor.stop(task_run, StopReason.RELEASE)
    await asyncio.sleep(0.3)  # longer than the grace time after which a run is closed
    assert [type(one) for one in scene.outcomes] == [Cancelled]
    assert begun == []


def task_runs() -> list[TaskRun]:
    return [found for found in gc.get_objects() if type(found) is TaskRun]


async def test_runs_that_ended_are_freed_without_the_garbage_collector(
    scene: Scene, begun: list[int]
) -> None:
    gc.collect()
    others = task_runs()  # of tests before this one, which something still holds
    gc.disable()
    try:
        for one in range(10):
            scene.start("body", one)
        await all_ended(scene, 10)
        await asyncio.sleep(0)  # the tasks of the loop end after their last step
        left = [run for run in task_runs() if not any(run is other for other in others)]
    finally:
        gc.enable()
    assert begun == list(range(10))
    assert left == []
