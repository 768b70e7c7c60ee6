"""The supervisor with applications that misbehave at start, and signals at the wrong moment."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support import APPS, until, worker_process
from tidegate import State
from tidegate.internals import core_of
from tidegate.worker.control import ControlConnection

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task functions of `apps/attacked.py`, which enqueue into this test's own file."""
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", f"sqlite:///{tmp_path}/queue.db")
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger.ndjson"))
    path = Path(__file__).parent.parent / "apps" / "attacked.py"
    spec = importlib.util.spec_from_file_location("attacked", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "attacked", module)
    spec.loader.exec_module(module)
    return module


def notes(directory: Path, name: str) -> list[Any]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def imports(directory: Path, process: str) -> list[int]:
    """Return the pids of one kind of process, in the order in which they imported the application."""
    return [pid for kind, pid, _ in notes(directory, "imports") if kind == process]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def came(truth: Any, what: str = "it came true", within: float = 15.0) -> None:
    async def check() -> bool:
        return bool(truth())

    await until(check, what=what, within=within)


@pytest.mark.parametrize(
    "odd",
    [
        "raise in start hook",
        *(pytest.param(odd, marks=pytest.mark.slow) for odd in ("exit in start hook", "other database")),
    ],
)
async def test_a_process_that_ends_at_once_again_and_again_is_not_restarted_in_a_hot_loop(
    client: Any, tmp_path: Path, odd: str
) -> None:
    with worker_process("attacked:app", tmp_path, ODD=odd):
        await came(lambda: imports(tmp_path, "pool_main"), "the first process starts")
        time.sleep(4.0)
        assert len(imports(tmp_path, "pool_main")) <= 5
    await client.app.aclose()


async def test_a_failed_start_is_noticed_despite_an_endless_thread(client: Any, tmp_path: Path) -> None:
    odd = "raise in start hook, thread that never ends"
    with worker_process("attacked:app", tmp_path, ODD=odd) as worker:
        await came(lambda: len(imports(tmp_path, "pool_main")) >= 2, "a second process is tried")
        assert "no client today" in worker.log()
    await client.app.aclose()


async def test_a_thread_that_never_ends_delays_neither_start_nor_stop(client: Any, tmp_path: Path) -> None:
    with worker_process("attacked:app", tmp_path, ODD="thread that never ends") as worker:
        assert await (await client.aquick.enqueue()).result(15) == "done"
        assert await (await client.quick.enqueue()).result(15) == "done"
        worker.signal(signal.SIGTERM)
        assert worker.wait(10) == 0
    await client.app.aclose()


@pytest.mark.parametrize("where", ["manifest", "pool_main", "child_main"])
async def test_a_worker_whose_application_hangs_while_it_is_imported_can_be_stopped(
    client: Any, tmp_path: Path, where: str
) -> None:
    with worker_process("attacked:app", tmp_path, ODD=f"hang in {where}", GRACE="60") as worker:
        if where == "child_main":
            await client.quick.enqueue()
        await came(lambda: imports(tmp_path, where), f"{where} begins to import")
        worker.signal(signal.SIGTERM)
        if where == "child_main":
            await came(lambda: "draining" in worker.log(), "the first signal was received")
            worker.signal(signal.SIGTERM)
        assert worker.wait(8) == 0
        await came(
            lambda: not any(alive(pid) for _, pid, _ in notes(tmp_path, "imports") if pid != os.getpid())
        )
    await client.app.aclose()


@pytest.mark.parametrize("where", ["pool_main", "child_main", "start hook"])
async def test_processes_end_with_a_killed_supervisor_also_while_they_start(
    client: Any, tmp_path: Path, where: str
) -> None:
    with worker_process("attacked:app", tmp_path, ODD=f"hang in {where}") as worker:
        if where == "child_main":
            await client.quick.enqueue()
        if where == "start hook":
            await came(lambda: notes(tmp_path, "starts"), "the start hook runs")
        else:
            await came(lambda: imports(tmp_path, where), f"{where} begins to import")
        worker.signal(signal.SIGKILL)
        worker.wait()
        await came(
            lambda: not any(alive(pid) for _, pid, _ in notes(tmp_path, "imports") if pid != os.getpid()),
            "every process ends",
            within=8,
        )
    await client.app.aclose()


def test_a_process_that_does_not_read_never_blocks_the_supervisor() -> None:
    ours, theirs = socket.socketpair()
    line = ControlConnection(ours, lambda message: None, lambda: None)
    begin = time.monotonic()
    with theirs:
        sent = [line.send(beat=begin) for _ in range(5_000)]
    line.close()
    assert sent[0]
    assert not sent[-1]
    assert time.monotonic() - begin < 5


async def test_task_functions_can_end_the_processes_they_start(client: Any, tmp_path: Path) -> None:
    with worker_process("attacked:app", tmp_path):
        assert await (await client.end_a_child.enqueue()).result(15) == -signal.SIGTERM
        assert await (await client.end_a_child_of_the_loop.enqueue()).result(15) == -signal.SIGTERM
        assert await (await client.end_a_fork.enqueue()).result(15) == -signal.SIGTERM
        assert await (await client.use_a_process_pool.enqueue([1, -2])).result(15) == [1, 2]
    await client.app.aclose()


async def test_a_bad_deploy_dead_letters_no_task(client: Any, tmp_path: Path) -> None:
    """Tasks are not to blame for child processes that can no longer import the application."""
    with worker_process("attacked:app", tmp_path, ODD="fail in child_main") as worker:
        assert await (await client.quick.enqueue()).result(15) == "done"
        (tmp_path / "fail now").touch()
        for pid in imports(tmp_path, "child_main"):
            os.kill(pid, signal.SIGKILL)
        handles = [await client.quick.enqueue() for _ in range(3)]
        await came(lambda: worker.log().count("RuntimeError: a bad deploy") >= 7, "child processes are tried")
        rows = await core_of(client.app).store.read_tasks([handle.id for handle in handles])
        assert {(row.counters.crashes, row.counters.attempts) for row in rows.values()} == {(0, 0)}
        (tmp_path / "fail now").unlink()
        for handle in handles:
            assert await handle.result(20) == "done"
    await client.app.aclose()


async def test_a_worker_that_loses_its_lease_is_replaced_despite_a_task_that_swallows_cancels(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("attacked:app", tmp_path):
        handle = await client.swallow.enqueue()
        await came(lambda: notes(tmp_path, "swallows"))
        store = core_of(client.app).store
        mine = (await handle.status()).worker_id
        await store.retire_worker(mine, why="by the test", is_loss=True, only_if_expired=False)
        await handle.cancel()
        await came(lambda: len(imports(tmp_path, "pool_main")) >= 2, "another process starts")
        assert await (await client.aquick.enqueue()).result(15) == "done"
    assert (await handle.status()).state is State.CANCELLED
    await client.app.aclose()


def test_a_database_that_the_application_would_not_use_is_refused(tmp_path: Path) -> None:
    """Else the supervisor would register processes in one file, and they would use another."""
    asked = subprocess.run(
        [
            sys.executable,
            "-m",
            "tidegate.cli",
            "worker",
            "attacked:app",
            "--database",
            f"sqlite:///{tmp_path}/mine.db",
        ],
        cwd=APPS,
        env=os.environ | {"OUT": str(tmp_path), "ODD": "other database"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert asked.returncode == 78
    assert "names its own database" in asked.stderr
