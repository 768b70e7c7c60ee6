"""A child process that dies before the function has started is not charged as a crash."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tidegate.context import RunControl
from tidegate.worker.children.messages import FunctionReturned, RunTask
from tidegate.worker.children.process import ChildDied, ChildProcess

pytestmark = pytest.mark.anyio


def a_run(directory: Path) -> RunTask:
    return RunTask(
        function="bodies:sync_nap", task_id="0" * 32, run=1, attempt=1, max_attempts=1, queue="q", priority=1, upstream="", tenant="",
        labels={}, args=b'{"a":[],"k":{"seconds":0.0}}', scratch_root=str(directory), ends_at=None,
    )  # fmt: skip


def a_control(directory: Path) -> RunControl:
    return RunControl(scratch_root=directory, scratch_name="scratch", clock=time.monotonic)


@pytest.fixture
async def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChildProcess:
    from support import APPS

    monkeypatch.chdir(APPS)
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    process = ChildProcess("bodies:app")
    await process.start()
    return process


async def test_a_child_runs_a_function_and_returns_its_result(child: ChildProcess, tmp_path: Path) -> None:
    answer = await child.run(a_run(tmp_path), a_control(tmp_path))
    assert isinstance(answer, FunctionReturned)
    await child.close()


async def test_a_child_that_died_idle_reports_that_nothing_started(
    child: ChildProcess, tmp_path: Path
) -> None:
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        with pytest.raises(ChildDied) as caught:
            await child.run(a_run(tmp_path), a_control(tmp_path))
        assert not caught.value.has_started
        while child.is_alive:
            await asyncio.sleep(0.01)
        with pytest.raises(ChildDied) as caught:
            await child.run(a_run(tmp_path), a_control(tmp_path))
        assert not caught.value.has_started
    await child.close()
