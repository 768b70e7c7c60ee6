"""How attempts begin: some in each turn of the loop, so that a large claim keeps nothing else waiting."""

from __future__ import annotations

import asyncio

import pytest
from executor_scene import Scene

from tidegate.context import Stop
from tidegate.domain.outcome import Cancelled, Released, Succeeded
from tidegate.worker.executor import BEGUN_AT_ONCE

pytestmark = pytest.mark.anyio

HOLDS = float("inf")


@pytest.fixture
def begun(scene: Scene) -> list[int]:
    """The numbers of the bodies that have begun."""
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


async def test_bodies_begin_in_the_order_taken_and_no_more_of_them_in_a_turn_of_the_loop(
    scene: Scene, begun: list[int]
) -> None:
    number, in_turns = 5 * BEGUN_AT_ONCE + 1, []
    for one in range(number):
        scene.start("body", one)
    assert scene.executor.unbegun == scene.executor.busy == number
    while len(scene.outcomes) < number:
        before = len(begun)
        await asyncio.sleep(0)
        in_turns.append(len(begun) - before)
    assert begun == list(range(number))
    assert max(in_turns) == BEGUN_AT_ONCE
    assert scene.executor.unbegun == scene.executor.busy == 0
    assert all(isinstance(outcome, Succeeded) for outcome in scene.outcomes)


@pytest.mark.parametrize(
    ("why", "outcome"), [(Stop.RELEASE, Released), (Stop.CANCEL, Cancelled), (Stop.LOST, type(None))]
)
async def test_what_is_stopped_before_its_turn_never_begins_and_frees_its_slot_at_once(
    scene: Scene, begun: list[int], why: Stop, outcome: type
) -> None:
    first, second = scene.start("body", 1), scene.start("body", 2)
    scene.executor.stop(first, why)
    assert [type(one) for one in scene.outcomes] == [outcome]
    assert list(scene.executor.running) == [second.claimed.fence]
    await all_ended(scene, 2)
    assert begun == [2]


async def test_a_cancel_by_force_before_its_turn_counts_once(scene: Scene, begun: list[int]) -> None:
    attempt = scene.start("body", 1)
    scene.executor.force(attempt)
    scene.executor.stop(attempt, Stop.RELEASE)
    await asyncio.sleep(0.3)  # past the grace after which a run is closed
    assert [type(one) for one in scene.outcomes] == [Cancelled]
    assert begun == []
