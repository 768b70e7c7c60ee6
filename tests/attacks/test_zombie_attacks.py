"""Workers that were frozen for longer than their lease: the store refuses their later writes."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support import APPS, until, worker_process

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    monkeypatch.setenv("OUT", str(tmp_path))
    spec = importlib.util.spec_from_file_location("attacked", APPS / "attacked.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "attacked", module)
    spec.loader.exec_module(module)
    return module


def naps(directory: Path, what: str) -> list[tuple[int, int]]:
    """Return (run, pid) of the starts or ends of functions, in their order."""
    path = directory / "naps"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(run, pid) for _, run, pid, word in map(json.loads, lines) if word == what]


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += family(int(child))
    return found


def freeze(pid: int, directory: Path) -> list[int]:
    """Freeze a process and its descendants, but not while one holds the store's lock, which blocks all others."""
    while True:
        frozen = family(pid)
        for one in frozen:
            os.kill(one, signal.SIGSTOP)
        with (directory / "queue.db.lock").open() as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return frozen
        for one in frozen:
            os.kill(one, signal.SIGCONT)
        time.sleep(0.01)


@pytest.mark.parametrize("body", ["nap", "sync_nap"])
async def test_a_finish_from_a_retired_worker_is_refused_and_it_continues_with_a_new_lease(
    client: Any, tmp_path: Path, body: str
) -> None:
    with worker_process("attacked:app", tmp_path, OUT=str(tmp_path)) as first:
        handle = await getattr(client, body).enqueue(1.5)
        await until(lambda: _truth(naps(tmp_path, "start")), what="it runs")
        mine = (await handle.status()).worker_id
        frozen = freeze(first.pid, tmp_path)
        with worker_process("attacked:app", tmp_path, OUT=str(tmp_path)):
            assert await handle.result(20) == "slept"
            row = await handle.status()
            assert (row.run, row.losses, row.attempts) == (2, 1, 0)
            assert row.worker_id != mine
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.5)
        assert await handle.status() == row
        await until(
            lambda: _truth("retired by another process" in first.log()),
            what="the frozen worker learns that it was retired",
        )
        assert await (await client.aquick.enqueue()).result(20) == "done"
        assert await (await client.quick.enqueue()).result(20) == "done"
    assert [run for run, _ in naps(tmp_path, "start")] == [1, 2]
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert [run.outcome for run in runs] == ["retrying", "succeeded"]
    await client.app.aclose()


async def test_a_supervisor_that_was_frozen_kills_no_process_that_answers(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("attacked:app", tmp_path, OUT=str(tmp_path), STALL="1.0", LEASE="20") as worker:
        handle = await client.nap.enqueue(3.0)
        await until(lambda: _truth(naps(tmp_path, "start")), what="it runs")
        for _ in range(4):
            worker.signal(signal.SIGSTOP)
            time.sleep(0.1)
        time.sleep(1.5)
        worker.signal(signal.SIGCONT)
        assert await handle.result(20) == "slept"
    assert [run for run, _ in naps(tmp_path, "start")] == [1]
    await client.app.aclose()


async def _truth(value: Any) -> bool:
    return bool(value)
