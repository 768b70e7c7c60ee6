"""What a task changes of its whole process does not outlive it, and children start as their worker did."""

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
from tidegate.worker.slots import pool as slot_pool
from tidegate.worker.slots.frames import Answer, Returned, Run
from tidegate.worker.slots.pool import NoSlot, SlotPool, SlotRules
from tidegate.worker.slots.process import SlotProcess
from tidegate.worker.surroundings import Surroundings

pytestmark = pytest.mark.anyio


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """The surroundings of a worker in the directory of its application."""
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    monkeypatch.chdir(APPS)
    made = Surroundings()
    yield made
    made.close()


async def run_in(child: SlotProcess, directory: Path, name: str, **given: object) -> Answer:
    run = Run(
        function=name, task_id="0" * 32, run=1, attempt=1, max_attempts=1, queue="q", priority=1, upstream="", tenant="",
        labels={}, args=json.dumps({"a": [], "k": given}).encode(), scratch_root=str(directory), ends_at=None,
    )  # fmt: skip
    async with asyncio.timeout(20):
        return await child.run(run, RunControl(directory, "scratch", time.monotonic))


async def test_a_child_starts_as_its_worker_did_and_no_task_in_it_meets_what_another_left(
    around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # as a task on the worker's own loop may
    monkeypatch.setenv("LEFT_BEHIND", "by the worker's own")
    before = os.umask(0o077)
    child = SlotProcess("slotted:app", surroundings=around)
    try:
        await child.start()
    finally:
        os.umask(before)
    first = await run_in(child, tmp_path, "surroundings")
    assert isinstance(first, Returned)
    assert str(APPS) in json.loads(first.data)
    assert "LEFT_BEHIND" not in first.data.decode()
    own = tmp_path / "its own"
    own.mkdir()
    left = await run_in(child, tmp_path, "disturb", where=str(own))
    assert isinstance(left, Returned)
    assert left.data == b'"a directory that is gone"'
    await asyncio.sleep(0.4)  # past the alarm it had set
    again = await run_in(child, tmp_path, "surroundings")
    assert isinstance(again, Returned)
    assert again.data == first.data
    assert not again.condemned
    await child.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may raise limits again")
async def test_a_child_whose_limits_cannot_be_put_back_runs_nothing_more(
    around: Surroundings, tmp_path: Path
) -> None:
    child = SlotProcess("slotted:app", surroundings=around)
    await child.start()
    answer = await run_in(child, tmp_path, "lower_a_limit_for_good")
    assert "resource limits" in answer.condemned
    await child.close()


CHANGES = """
import os, resource, signal, sys
from tidegate.worker.surroundings import Surroundings

around = Surroundings()
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


def test_putting_back_says_what_was_changed_and_what_cannot_be_put_back(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CHANGES, str(tmp_path)], check=True, timeout=30)


async def test_while_no_child_can_be_started_there_is_no_room_and_it_is_tried_until_one_can(
    around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_pool, "FIRST_RESTART_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    rooms: list[int] = []
    slots = SlotPool(
        "late:app", SlotRules(), on_room=lambda: rooms.append(slots.room), surroundings=Surroundings()
    )
    assert slots.room > 0
    with pytest.raises(NoSlot):
        async with slots.lend():
            pass
    assert slots.room == 0
    assert "no child process can be started" in slots.broken
    (tmp_path / "late.py").write_text((APPS / "slotted.py").read_text())

    async def mended() -> bool:
        return not slots.broken

    await until(mended, what="a child process was started")
    async with slots.lend() as slot:
        assert slot.is_alive
    assert rooms[-1] > 0
    await slots.close()
