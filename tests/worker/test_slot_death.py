"""A child process that dies before a body's turn has come is nobody's crash."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tidegate.context import RunControl
from tidegate.worker.slots.frames import Returned, Run
from tidegate.worker.slots.process import SlotDied, SlotProcess

pytestmark = pytest.mark.anyio


def a_run(directory: Path) -> Run:
    return Run(
        function="bodies:sync_nap", task_id="0" * 32, run=1, attempt=1, max_attempts=1, queue="q", priority=1, upstream="", tenant="",
        labels={}, args=b'{"a":[],"k":{"seconds":0.0}}', scratch_root=str(directory), ends_at=None,
    )  # fmt: skip


def a_control(directory: Path) -> RunControl:
    return RunControl(scratch_root=directory, scratch_name="scratch", clock=time.monotonic)


@pytest.fixture
async def slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlotProcess:
    from support import APPS

    monkeypatch.chdir(APPS)
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    process = SlotProcess("bodies:app")
    await process.start()
    return process


async def test_a_body_is_run_and_answered(slot: SlotProcess, tmp_path: Path) -> None:
    answer = await slot.run(a_run(tmp_path), a_control(tmp_path))
    assert isinstance(answer, Returned)
    await slot.close()


async def test_one_that_died_while_idle_says_that_nothing_began(slot: SlotProcess, tmp_path: Path) -> None:
    os.kill(slot.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        with pytest.raises(SlotDied) as caught:
            await slot.run(a_run(tmp_path), a_control(tmp_path))
        assert not caught.value.began
        while slot.is_alive:
            await asyncio.sleep(0.01)
        with pytest.raises(SlotDied) as caught:
            await slot.run(a_run(tmp_path), a_control(tmp_path))
        assert not caught.value.began
    await slot.close()
