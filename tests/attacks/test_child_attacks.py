"""A stop request that reaches a child process at the wrong moment is obeyed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import APPS
from tidegate.context import RunControl, StopReason
from tidegate.worker.children.messages import FunctionStopped, RunTask
from tidegate.worker.children.process import ChildProcess

pytestmark = pytest.mark.anyio


@pytest.fixture
async def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChildProcess]:
    monkeypatch.chdir(APPS)
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    process = ChildProcess("attacked:app")
    await process.start()
    yield process
    await process.close()


@pytest.mark.parametrize("function", ["sync_nap", "nap"])
async def test_a_stop_before_the_task_function_has_started_is_obeyed(
    child: ChildProcess, tmp_path: Path, function: str
) -> None:
    for number in range(20):
        run = RunTask(
            function=f"attacked:{function}",
            task_id=f"01900000-0000-7000-8000-{number:012d}",
            run=1,
            attempt=1,
            max_attempts=3,
            queue="q",
            priority=1,
            upstream="",
            tenant="",
            labels={},
            args=b'{"a":[],"k":{"seconds":30}}',
            scratch_root=str(tmp_path / "scratch"),
            ends_at=None,
        )
        running = asyncio.create_task(
            child.run(run, RunControl(scratch_root=tmp_path, scratch_name="s", clock=time.monotonic))
        )
        await asyncio.sleep(0)
        child.request_stop(StopReason.CANCEL)
        async with asyncio.timeout(5):
            assert isinstance(await running, FunctionStopped)
