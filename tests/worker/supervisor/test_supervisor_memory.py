"""Memory of pool processes: replaced over the soft limit, killed over the hard limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from worker_support import came, notes, service

from support import all_final, load_app
from tidegate import ConfigError, Pool, State, Tidegate
from tidegate.internals import core_of
from tidegate.worker.children import process_tree
from tidegate.worker.engine.pool_main import check_memory_limits
from tidegate.worker.supervisor.memory_watch import MemoryWatch

pytestmark = pytest.mark.anyio
MIB = 1 << 20


@dataclass
class Process:
    """A pool process whose memory the test sets."""

    pool: Pool
    pid: int = 4711
    is_ready: bool = True
    drain_reason: str = ""
    is_over_memory: bool = False
    kill_reason: str = ""
    graces: list[float] = field(default_factory=list)

    def drain(self, grace: float, why: str) -> None:
        self.graces.append(grace)
        self.drain_reason = why

    def kill(self, why: str) -> None:
        self.kill_reason = why


def watch(process: Process, *readings: int) -> MemoryWatch:
    """Return a watch over one process that uses these MiB at each check."""
    held = iter(readings)

    def measure(pid: int, limit: int) -> int | None:
        assert pid == process.pid
        found = next(held) * MIB
        return found if found > limit else None

    return MemoryWatch(lambda: [process], grace=lambda: 7.0, measure=measure)


async def test_a_process_over_its_soft_memory_limit_is_drained_once() -> None:
    process = Process(Pool(memory_soft_limit=200 * MIB))
    watched = watch(process, 100, 250, 251)
    await watched.check(process)
    assert process.drain_reason == ""
    await watched.check(process)
    await watched.check(process)
    assert process.drain_reason == "it holds 251 MiB, more than 200"
    assert (process.graces, process.kill_reason, process.is_over_memory) == ([7.0], "", True)


async def test_a_process_over_its_hard_memory_limit_is_killed_also_while_draining() -> None:
    process = Process(Pool(memory_limit=300 * MIB, memory_soft_limit=200 * MIB), drain_reason="SIGHUP")
    await watch(process, 350, 360).check(process)
    assert process.kill_reason == "memory limit 300 MiB passed: 360 MiB in use"


async def test_memory_counted_twice_for_a_moment_kills_no_process() -> None:
    process = Process(Pool(memory_limit=300 * MIB))
    await watch(process, 350, 200).check(process)
    assert process.kill_reason == ""


async def test_a_pool_without_limits_is_not_measured() -> None:
    process = Process(Pool())
    await watch(process).check(process)
    assert (process.kill_reason, process.drain_reason) == ("", "")


# --- reading memory --------------------------------------------------------------------------------------

HOLD = "import sys, time; kept = bytearray(b'x' * (60 << 20)); print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("session", "counts"), [(False, True), (True, False)])
def test_child_processes_count_unless_they_are_in_another_session(session: bool, counts: bool) -> None:
    own = process_tree.excess(os.getpid(), 0, other_sessions=False) or 0
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD], start_new_session=session, **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        limit = own + 50 * MIB
        assert (process_tree.excess(os.getpid(), limit, other_sessions=False) is not None) is counts
        assert process_tree.excess(os.getpid(), limit) is not None
        child.kill()


FORK = """
import os, sys
kept = bytearray(b'x' * (60 << 20))
for _ in range(4):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
print('forked', flush=True)
sys.stdin.read()
"""


def test_pages_that_forked_children_share_count_once() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FORK], **pipes) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        held = process_tree.excess(parent.pid, 50 * MIB)
        assert held is not None
        assert held < 150 * MIB
        process_tree.kill_tree(parent.pid, "none")


# --- real processes --------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OUT", str(tmp_path))
    return load_app("supervised", tmp_path, monkeypatch)


async def test_a_pool_process_over_its_soft_limit_is_replaced_and_its_tasks_end(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, "worker", "supervised:app", SOFT_MIB="200") as worker:
        neighbour = await client.nap.enqueue(1.5)
        await came(lambda: notes(tmp_path, "naps"), "the neighbour has begun")
        old = await (await client.leak.enqueue(250)).result(15)
        await came(lambda: "takes no more tasks: it holds" in worker.log(), "it is found too large")
        assert await neighbour.result(15) == old
        assert (await neighbour.status()).run == 1
        assert await (await client.nap.enqueue(0.0)).result(15) != old
    await client.app.aclose()


async def test_a_pool_process_over_its_hard_limit_is_killed_and_the_culprit_alone_is_charged(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, "worker", "supervised:app", HARD_MIB="250") as worker:
        neighbour = await client.nap.enqueue(6.0)
        await came(lambda: notes(tmp_path, "naps"), "the neighbour has begun")
        greedy = await client.leak.enqueue(400, True)
        rows = await all_final(client.app, [greedy.id])
        assert (rows[greedy.id].state, rows[greedy.id].reason) == (State.DEAD, "crash")
        runs = [entry for entry in await greedy.history() if entry.kind == "run"]
        assert len(runs) == 2  # one retry, as in a child process
        assert all(
            re.search(r"memory limit 250 MiB passed: [234]\d\d MiB in use", run.message) for run in runs
        )
        assert "is killed: memory limit 250 MiB passed" in worker.log()
        assert await neighbour.result(20) > 1
        counters = await neighbour.status()
        assert (counters.attempts, counters.crashes) == (0, 0)
        assert counters.releases >= 1
    await client.app.aclose()


async def test_memory_of_child_processes_does_not_count_for_their_pool_process(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, "worker", "supervised:app", HARD_MIB="250") as worker:
        handles = [await client.hold_in_child.enqueue(150) for _ in range(3)]
        assert [await handle.result(20) for handle in handles] == [150] * 3
        assert "killed" not in worker.log()
    await client.app.aclose()


@pytest.mark.parametrize("limit", ["SOFT", pytest.param("HARD", marks=pytest.mark.slow)])
async def test_a_memory_limit_below_the_imported_application_is_refused_with_both_numbers(
    client: Any, tmp_path: Path, limit: str
) -> None:
    handle = await client.nap.enqueue(0.0)
    with service(tmp_path, "worker", "supervised:app", **{f"{limit}_MIB": "5"}) as worker:
        assert worker.wait(40) == 78
        option = "memory_limit" if limit == "HARD" else "memory_soft_limit"
        assert re.search(rf"{option} is 5 MiB; the application alone holds \d+ MiB", worker.log())
    assert (await handle.status()).state is State.READY
    assert [entry.kind for entry in await handle.history() if entry.kind == "run"] == []
    await client.app.aclose()


async def test_the_supervisor_does_not_check_the_memory_of_an_importing_process() -> None:
    process = Process(Pool(memory_limit=200 * MIB, memory_soft_limit=100 * MIB), is_ready=False)
    await watch(process, 250, 250).check(process)
    assert (process.kill_reason, process.drain_reason) == ("", "")


def test_a_functions_memory_limit_below_the_imported_application_is_refused(client: Any) -> None:
    app = Tidegate()
    app.task(name="small", runs_in="process", memory_limit=20 * MIB)(client.hold_in_child.function)
    check_memory_limits(Pool(), core_of(app), lambda limit: None)
    with pytest.raises(
        ConfigError, match="small: memory_limit is 20 MiB; the application alone holds 50 MiB"
    ):
        check_memory_limits(Pool(), core_of(app), lambda limit: 50 * MIB if limit < 50 * MIB else None)
