"""Operations on dead letters: recorded, sent step by step, followed, undone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_build import START, Build, SettableClock, dead, retrying, succeeded

from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.ids import IdMaker
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.operations import bulk
from tidegate.store.operation_rows import (
    LetterState,
    NewOperation,
    OperationKind,
    OperationRow,
    OperationState,
    RedriveSettings,
)
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter

FUNCTION = "app:work"
QUICK = {"app:work": {}}


class Redrives:
    """Starts redrives and advances them as maintenance does."""

    def __init__(self, build: Build, clock: SettableClock) -> None:
        self.build = build
        self.store = build.store
        self.clock = clock
        self.runner = OperationRunner(build.store)

    async def dead(self, count: int, **changes: Any) -> list[str]:
        """Make dead letters of the queue `q`."""
        return [await self.build.in_state(State.DEAD, **{"queue": "q"} | changes) for _ in range(count)]

    async def start(self, which: TaskFilter | None = None, **given: Any) -> OperationRow:
        """Start a redrive of all dead letters, unless a filter is given."""
        return await bulk.start_redrive(
            self.store, which or TaskFilter(), **{"by": "ada", "own": (FUNCTION,)} | given
        )

    async def rounds(self, count: int = 20) -> None:
        """Run this many rounds of maintenance, a second apart."""
        for _ in range(count):
            while await self.runner.run_once():
                pass
            self.clock.advance(1)

    async def read(self, operation: OperationRow) -> OperationRow:
        """Return the operation as it is now."""
        return await bulk.get_operation(self.store, operation.id)

    async def states(self, operation: OperationRow) -> dict[str, LetterState]:
        """Return the state of each letter."""
        return {
            letter.task_id: letter.state
            for letter in await self.store.list_letters(operation.id, limit=1_000)
        }


@pytest.fixture
async def redrives(build: Build, clock: SettableClock, store: Store) -> Redrives:
    await store.save_manifest("app", {"functions": {FUNCTION: {}}})
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=60_000.0))])
    return Redrives(build, clock)


async def test_the_canary_goes_first_and_the_rest_after_its_first_attempts_succeeded(
    redrives: Redrives,
) -> None:
    build, ids = redrives.build, await redrives.dead(20)
    worker = await build.worker(slots=100, lease=1e6)
    operation = await redrives.start()

    await redrives.rounds(3)
    canary = await build.claim(worker, queues=("q",))
    assert len(canary) == 5
    assert (await redrives.read(operation)).state is OperationState.CANARY

    await build.done(*[succeeded(task.fence) for task in canary])
    await redrives.rounds(3)
    rest = await build.claim(worker, queues=("q",))
    assert sorted(task.fence.task_id for task in [*canary, *rest]) == sorted(ids)

    await build.done(*[succeeded(task.fence) for task in rest])
    await redrives.rounds(2)
    row = await redrives.read(operation)
    assert (row.state, row.chosen, row.sent, row.succeeded, row.skipped) == (
        OperationState.DONE, 20, 20, 20, 0,
    )
    assert row.ended_at is not None
    assert set((await redrives.states(operation)).values()) == {LetterState.SUCCEEDED}


async def test_a_canary_that_dies_again_stops_the_redrive_and_leaves_the_other_letters_dead(
    redrives: Redrives,
) -> None:
    build = redrives.build
    await redrives.dead(20)
    worker = await build.worker(slots=100, lease=1e6)
    operation = await redrives.start()
    await redrives.rounds(2)

    canary = await build.claim(worker, queues=("q",))
    await build.done(*[dead(task.fence) for task in canary[:2]])
    await redrives.rounds(2)

    row = await redrives.read(operation)
    assert row.state is OperationState.STOPPED
    assert "2 of 2 first attempts failed, more than 20%" in row.note
    assert (row.sent, row.died) == (5, 2)
    assert await build.store.count_dead_letters(TaskFilter()) == 17
