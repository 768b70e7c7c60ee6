"""A process that ends as it was told: what it could not give back is nobody's crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import APPS, FAST, until
from tidegate import Pool
from tidegate.domain.outcome import Counters, Fence, Released
from tidegate.policy.crash import decide_orphan
from tidegate.worker.supervisor.child import NOBODY, OVERDUE, Child

pytestmark = pytest.mark.anyio


@pytest.fixture
async def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.chdir(APPS)
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger.ndjson"))
    url = f"sqlite:///{tmp_path}/queue.db"
    return Child(application="bodies:app", pool=Pool(), timings=FAST, database_url=url)


async def started(child: Child) -> None:
    await child.start()

    async def ready() -> bool:
        return child.is_ready

    await until(ready, what="the pool process is ready")


async def test_an_end_that_was_asked_for_has_no_culprit_among_the_tasks(child: Child) -> None:
    await started(child)
    child.leave(0.0, "the test says so")
    assert await child.ended() == 0
    assert child.culprit == NOBODY


async def test_of_a_process_that_was_killed_nobody_knows_the_culprit(child: Child) -> None:
    await started(child)
    child.leave(60.0, "the test says so")
    child.kill("the test says so")
    assert await child.ended() == -9
    assert child.culprit is None


async def test_a_process_that_is_late_to_end_though_no_task_holds_its_loop_has_no_culprit_either(
    child: Child,
) -> None:
    await started(child)
    child.leave(60.0, "the test says so")
    child.kill(OVERDUE)
    assert await child.ended() == -9
    assert child.culprit == NOBODY


def test_runs_that_such_an_end_left_behind_are_released_uncharged() -> None:
    outcome = decide_orphan(
        Fence("task", 1), why="exit code 0", loss=False, cancel_requested=False, crash_limit=3, base_seconds=1.0,
        cap_seconds=1.0, counters=Counters(), culprit=Fence("task", 1) == NOBODY,
    )  # fmt: skip
    assert isinstance(outcome, Released)
