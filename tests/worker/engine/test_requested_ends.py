"""A process that ends on request: runs that it could not release are not charged as crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import APPS, FAST, until
from tidegate import Pool
from tidegate.domain.outcome import Counters, Fence, Released
from tidegate.policy.crash import decide_orphan
from tidegate.worker.supervisor.pool_process import NO_CULPRIT, OVERDUE, PoolProcess

pytestmark = pytest.mark.anyio


@pytest.fixture
async def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolProcess:
    monkeypatch.chdir(APPS)
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger.ndjson"))
    url = f"sqlite:///{tmp_path}/queue.db"
    return PoolProcess(application="bodies:app", pool=Pool(), timings=FAST, database_url=url)


async def started(process: PoolProcess) -> None:
    await process.start()

    async def ready() -> bool:
        return process.is_ready

    await until(ready, what="the pool process is ready")


async def test_a_requested_shutdown_has_no_culprit_task(process: PoolProcess) -> None:
    await started(process)
    process.drain(0.0, "the test says so")
    assert await process.wait_ended() == 0
    assert process.culprit == NO_CULPRIT


async def test_the_culprit_of_a_killed_idle_process_is_unknown(process: PoolProcess) -> None:
    await started(process)
    process.drain(60.0, "the test says so")
    process.kill("the test says so")
    assert await process.wait_ended() == -9
    assert process.culprit is None


async def test_an_overdue_process_whose_loop_is_idle_has_no_culprit(
    process: PoolProcess,
) -> None:
    await started(process)
    process.drain(60.0, "the test says so")
    process.kill(OVERDUE)
    assert await process.wait_ended() == -9
    assert process.culprit == NO_CULPRIT


def test_runs_left_by_a_requested_shutdown_are_released_uncharged() -> None:
    outcome = decide_orphan(
        Fence("task", 1), why="exit code 0", loss=False, cancel_requested=False, crash_limit=3, base_seconds=1.0,
        cap_seconds=1.0, counters=Counters(), culprit=Fence("task", 1) == NO_CULPRIT,
    )  # fmt: skip
    assert isinstance(outcome, Released)
