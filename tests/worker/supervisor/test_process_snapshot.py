"""Changes to the process state end with the task, and children start with their worker's state."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import APPS, until
from tidegate.context import RunControl
from tidegate.worker.children import pool as child_pool
from tidegate.worker.children.messages import FunctionReturned, RunReply, RunTask
from tidegate.worker.children.pool import ChildPool, ChildRules, NoChildAvailable
from tidegate.worker.children.process import ChildProcess
from tidegate.worker.process_snapshot import ProcessSnapshot

pytestmark = pytest.mark.anyio


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessSnapshot]:
    """The process state of a worker in the directory of its application."""
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    monkeypatch.chdir(APPS)
    made = ProcessSnapshot()
    yield made
    made.close()


async def run_in(child: ChildProcess, directory: Path, name: str, **given: object) -> RunReply:
    run = RunTask(
        function=name, task_id="0" * 32, run=1, attempt=1, max_attempts=1, queue="q", priority=1, upstream="", tenant="",
        labels={}, args=json.dumps({"a": [], "k": given}).encode(), scratch_root=str(directory), ends_at=None,
    )  # fmt: skip
    async with asyncio.timeout(20):
        return await child.run(run, RunControl(directory, "scratch", time.monotonic))


async def test_a_child_starts_with_its_workers_process_state_and_restores_it_after_each_task(
    around: ProcessSnapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # as a task on the worker's own loop may
    monkeypatch.setenv("LEFT_BEHIND", "by the worker's own")
    before = os.umask(0o077)
    child = ChildProcess("slotted:app", snapshot=around)
    try:
        await child.start()
    finally:
        os.umask(before)
    before_write = await run_in(child, tmp_path, "surroundings")
    assert isinstance(before_write, FunctionReturned)
    assert str(APPS) in json.loads(before_write.data)
    assert "LEFT_BEHIND" not in before_write.data.decode()
    own = tmp_path / "its own"
    own.mkdir()
    left = await run_in(child, tmp_path, "disturb", where=str(own))
    assert isinstance(left, FunctionReturned)
    assert left.data == b'"a directory that is gone"'
    await asyncio.sleep(0.4)  # longer than the alarm that it had set
    again = await run_in(child, tmp_path, "surroundings")
    assert isinstance(again, FunctionReturned)
    assert again.data == before_write.data
    assert not again.unhealthy_reason
    await child.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may raise limits again")
async def test_a_child_whose_limits_cannot_be_restored_is_replaced(
    around: ProcessSnapshot, tmp_path: Path
) -> None:
    child = ChildProcess("slotted:app", snapshot=around)
    await child.start()
    answer = await run_in(child, tmp_path, "lower_a_limit_for_good")
    assert "resource limits" in answer.unhealthy_reason
    await child.close()


CHANGES = """
import os, resource, signal, sys
from tidegate.worker.process_snapshot import ProcessSnapshot

around = ProcessSnapshot()
assert around.restore() == ([], []), "nothing was changed"
os.chdir(sys.argv[1])
os.environ["LEFT_BEHIND"] = "yes"
os.umask(around.umask ^ 0o077)
signal.setitimer(signal.ITIMER_VIRTUAL, 100)
changed = ["the working directory", "the umask", "the environment", "timers"]
assert around.restore() == (changed, [])
assert os.getcwd() == around.directory
assert "LEFT_BEHIND" not in os.environ

def refuse(limit, values):
    raise ValueError("not allowed to raise maximum limit")

around.limits[resource.RLIMIT_CORE] = (7, 8)
resource.setrlimit = refuse
assert around.restore() == ([], ["resource limits (not allowed to raise maximum limit)"])
"""


def test_restore_returns_what_was_restored_and_what_was_lost(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CHANGES, str(tmp_path)], check=True, timeout=30)


async def test_while_no_child_starts_none_is_available_and_starting_is_retried(
    around: ProcessSnapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_pool, "FIRST_RESTART_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    rooms: list[int] = []
    children = ChildPool(
        "late:app",
        ChildRules(),
        on_available=lambda: rooms.append(children.available),
        snapshot=ProcessSnapshot(),
    )
    assert children.available > 0
    with pytest.raises(NoChildAvailable):
        async with children.acquire():
            pass
    assert children.available == 0
    assert "no child process can be started" in children.start_error
    (tmp_path / "late.py").write_text((APPS / "slotted.py").read_text())

    async def mended() -> bool:
        return not children.start_error

    await until(mended, what="a child process was started")
    async with children.acquire() as child:
        assert child.is_alive
    assert rooms[-1] > 0
    await children.close()
