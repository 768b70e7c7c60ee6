"""Fixtures for tests of the executor without a worker around it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from executor_setup import Scene

from support import make_app
from tidegate.domain.outcome import Outcome
from tidegate.internals import core_of
from tidegate.worker.children.pool import ChildPool, ChildRules
from tidegate.worker.children.runner import ChildRunner
from tidegate.worker.engine.executor import Executor
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.outcome_decider import OutcomeDecider


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    app = make_app(tmp_path)
    loop = asyncio.get_running_loop()
    lease = Lease(loop.time)
    decider = OutcomeDecider(clock=loop.time, wall_clock=loop.time, rng=random.Random(1))
    children = ChildPool("bodies:app", ChildRules())
    outcomes: list[Outcome | None] = []
    executor = Executor(
        functions=core_of(app).functions,
        scratch_root=tmp_path,
        stop_grace=0.2,
        on_finished=lambda task_run, outcome: outcomes.append(outcome),
        decider=decider,
        lease=lease,
        child_runner=ChildRunner(children, decider, lease, ()),
    )
    yield Scene(app, lease, executor, children, outcomes)
    executor.close()
    await children.close()
    await app.aclose()
