"""An executor by itself, for tests of the path of one attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from executor_scene import Scene

from support import make_app
from tidegate.domain.outcome import Outcome
from tidegate.worker.executor import Executor
from tidegate.worker.judge import Judge
from tidegate.worker.lease import Lease
from tidegate.worker.slots.pool import SlotPool, SlotRules
from tidegate.worker.slots.runner import SlotRunner


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    app = make_app(tmp_path)
    loop = asyncio.get_running_loop()
    lease = Lease(loop.time)
    judge = Judge(clock=loop.time, wall_clock=loop.time, rng=random.Random(1))
    slots = SlotPool("bodies:app", SlotRules())
    outcomes: list[Outcome | None] = []
    executor = Executor(
        functions=app.functions,
        scratch_root=tmp_path,
        stop_grace=0.2,
        settled=lambda attempt, outcome: outcomes.append(outcome),
        judge=judge,
        lease=lease,
        in_slots=SlotRunner(slots, judge, lease, ()),
    )
    yield Scene(app, lease, executor, slots, outcomes)
    executor.close()
    await slots.close()
    await app.aclose()
