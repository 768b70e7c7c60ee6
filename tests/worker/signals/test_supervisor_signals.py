"""Signals to a worker: as process 1, behind a shell, with an unreachable store, and SIGHUP."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from worker_support import came, children, descendants, health, live_health, notes, service, state_of

from support import all_final, load_app, until
from tidegate import State
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio
WORKER = ("worker", "supervised:app")


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OUT", str(tmp_path))
    return load_app("supervised", tmp_path, monkeypatch)


@functools.cache
def own_pid_namespace() -> Sequence[str] | None:
    """Return the command that runs another one as process 1; None if that is not permitted."""
    for words in (
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"],
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"],
    ):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False).returncode == 0:
                return words
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def process_1() -> Sequence[str]:
    words = own_pid_namespace()
    if words is None:
        pytest.skip("unshare --pid is not permitted here, so nothing can be process 1")
    return words


async def began(directory: Path, count: int) -> None:
    await came(lambda: len(notes(directory, "naps")) >= count, f"{count} naps have begun")


# --- stopping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["process 1", "sh -c", pytest.param("sh -c exec", marks=pytest.mark.slow)])
async def test_sigterm_drains_a_worker_also_as_process_1_and_behind_a_shell(
    client: Any, tmp_path: Path, place: str
) -> None:
    before = {
        "process 1": process_1,
        "sh -c": lambda: ["sh", "-c", '"$@"', "sh"],
        "sh -c exec": lambda: ["sh", "-c", 'true; exec "$@"', "sh"],
    }[place]()
    with service(tmp_path, *WORKER, before=before, GRACE="1.5") as worker:
        short, long = await client.nap.enqueue(0.6), await client.nap.enqueue(60.0)
        await began(tmp_path, 2)
        reported = children(worker.pid)[0] if place == "process 1" else worker.pid
        asked_at = time.monotonic()
        os.kill(reported, signal.SIGTERM)
        await came(lambda: "takes no more tasks" in worker.log(), "it drains")
        queued = await client.nap.enqueue(0.0)
        # A shell that stays dies of the signal, and the worker notices its end.
        assert worker.wait() == (-signal.SIGTERM if place == "sh -c" else 0)
        await came(lambda: "has stopped" in worker.log(), "the worker has drained")
        assert 1.2 < time.monotonic() - asked_at < 1.5 + 2.0
    rows = await core_of(client.app).store.read_tasks([short.id, long.id, queued.id])
    assert rows[short.id].state is State.SUCCEEDED
    assert (rows[long.id].state, rows[queued.id].run) == (State.READY, 0)
    assert (rows[long.id].counters.attempts, rows[long.id].counters.releases) == (0, 1)
    await client.app.aclose()


async def test_a_shell_as_process_1_logs_a_warning_and_a_group_signal_drains(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, *WORKER, before=[*process_1(), "sh", "-c", '"$@"; true', "sh"]) as worker:
        handle = await client.nap.enqueue(0.5)
        await began(tmp_path, 1)
        assert "write `exec` before it" in worker.log()
        os.killpg(worker.pid, signal.SIGTERM)  # as a terminal or a process manager does
        await came(lambda: "has stopped" in worker.log(), "the worker has drained")
        assert await handle.result(5) > 1
    await client.app.aclose()


@pytest.mark.parametrize(
    "shell", ['"$@" & exit 0', pytest.param('nohup "$@" & exit 0', marks=pytest.mark.slow)]
)
async def test_a_worker_in_the_background_outlives_its_shell(client: Any, tmp_path: Path, shell: str) -> None:
    with service(tmp_path, *WORKER, before=["sh", "-c", shell, "sh"]) as worker:
        assert worker.wait() == 0
        pid = await came(lambda: ready_pid(tmp_path), "it is ready")
        os.kill(pid, signal.SIGHUP)
        if "nohup" in shell:
            assert await (await client.nap.enqueue(0.1)).result(15) > 1
            assert "restarting, one" not in worker.log()
        else:
            await came(lambda: "every process has restarted" in worker.log(), "it has restarted")
        os.kill(pid, signal.SIGTERM)
        await came(lambda: "has stopped" in worker.log(), "it has stopped")
    await client.app.aclose()


def ready_pid(directory: Path) -> int:
    """Return the process id of the only worker once it is ready; else 0."""
    answer = live_health(directory)
    return answer.pid if answer is not None and not answer.problems else 0


def processes(directory: Path) -> str:
    """Return what the only worker says of its processes; empty until it is ready."""
    answer = live_health(directory)
    return answer.status if answer is not None and not answer.problems else ""


@pytest.mark.parametrize(
    "when", [pytest.param("while the application is imported", marks=pytest.mark.slow), "as process 1 too"]
)
async def test_a_stop_signal_before_the_start_is_obeyed(client: Any, tmp_path: Path, when: str) -> None:
    hang = "import time; print('importing', flush=True); time.sleep(60)"
    (tmp_path / "slow_to_import.py").write_text(hang)
    before = process_1() if "1" in when else ()
    words = ("worker", "slow_to_import:app")
    with service(tmp_path, *words, before=before, PYTHONPATH=f"{tmp_path}:{':'.join(sys.path)}") as worker:
        await came(lambda: "importing" in worker.log(), "the import has begun")
        os.kill(children(worker.pid)[0] if before else worker.pid, signal.SIGTERM)
        assert worker.wait(5) == 0
    await client.app.aclose()


HOLD = """
import fcntl, sqlite3, sys, time
lock = open(sys.argv[1] + ".lock")
fcntl.flock(lock, fcntl.LOCK_EX)
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_hanging_store_does_not_block_the_exit_and_the_lease_runs_out_later(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, *WORKER, GRACE="1") as worker:
        handle = await client.nap.enqueue(60.0)
        await began(tmp_path, 1)
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "queue.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            asked_at = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            worker.wait()
            assert time.monotonic() - asked_at < 1 + 4 * 0.4 + 3
            holder.kill()
    assert (await handle.status()).state is State.RUNNING
    with service(tmp_path, *WORKER):

        async def again() -> bool:
            return bool((await handle.status()).run == 2)

        await until(again, what="another worker takes it up")
    assert (await handle.status()).losses == 1
    await client.app.aclose()


async def test_sigquit_releases_running_tasks_at_once(client: Any, tmp_path: Path) -> None:
    with service(tmp_path, *WORKER, GRACE="60") as worker:
        handle = await client.nap.enqueue(60.0)
        await began(tmp_path, 1)
        asked_at = time.monotonic()
        worker.process.send_signal(signal.SIGQUIT)
        assert worker.wait() == 0
        assert time.monotonic() - asked_at < 3
    assert (await handle.status()).state is State.READY
    await client.app.aclose()


async def test_the_exit_code_shows_that_a_process_had_to_be_killed(client: Any, tmp_path: Path) -> None:
    with service(tmp_path, *WORKER, GRACE="0.3") as worker:
        handle = await client.leak.enqueue(1, True)
        await came(lambda: notes(tmp_path, "leaks"), "the loop is held")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 1
    (run,) = [entry for entry in await handle.history() if entry.kind == "run"]
    assert (run.charge, run.why) == ("crash", "crash 1 of 3, uncharged: did not end within its grace time")
    assert (await handle.status()).state in {State.READY, State.RETRYING}
    await client.app.aclose()


async def test_a_killed_child_process_is_logged_with_its_task_and_shown_by_the_exit_code(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, *WORKER, GRACE="0.2") as worker:
        handle = await client.sleep_in_child.enqueue(60.0)
        await came(lambda: notes(tmp_path, "sleeps"), "the child process sleeps")
        (pid,) = notes(tmp_path, "sleeps")
        os.kill(pid, signal.SIGSTOP)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 1
        log = worker.log()
    assert (await handle.status()).state is State.READY
    assert f"child process {pid} is killed: supervised:sleep_in_child {handle.id}, run 1" in log
    assert f"released: supervised:sleep_in_child {handle.id}, run 1: released by shutdown" in log
    assert "1 child processes were killed because their tasks did not stop" in log
    await client.app.aclose()


async def test_a_broken_configuration_exits_with_78_at_start_and_is_retried_later(
    client: Any, tmp_path: Path
) -> None:
    (tmp_path / "refuse").touch()
    with service(tmp_path, *WORKER) as worker:
        assert worker.wait() == 78
        assert "its process reports a wrong configuration" in worker.log()
    (tmp_path / "refuse").unlink()
    with service(tmp_path, *WORKER) as worker:
        pid = await (await client.nap.enqueue(0.0)).result(15)
        await came(lambda: ready_pid(tmp_path), "it is ready")
        (tmp_path / "refuse").touch()
        os.kill(pid, signal.SIGKILL)
        await came(lambda: "exit code 78" in worker.log(), "the next one cannot work")
        (tmp_path / "refuse").unlink()
        assert await (await client.nap.enqueue(0.0)).result(20) != pid
        assert worker.process.poll() is None
    await client.app.aclose()


# --- process 1 and orphans -------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["process 1", pytest.param("subreaper", marks=pytest.mark.slow)])
async def test_orphans_of_tasks_are_reaped(client: Any, tmp_path: Path, place: str) -> None:
    before = process_1() if place == "process 1" else ()
    with service(tmp_path, *WORKER, before=before) as worker:
        await (await client.leave_orphans.enqueue(5)).result(15)
        supervisor = children(worker.pid)[0] if before else worker.pid

        def adopted() -> list[str]:
            return [state_of(pid) for pid in children(supervisor)]

        await came(lambda: len(adopted()) == 1, "only the pool process is left")
        for _ in range(3):  # asyncio still notices its own: a killed pool process is replaced
            (pool,) = children(supervisor)
            os.kill(pool, signal.SIGKILL)
            await came(lambda pool=pool: pool not in children(supervisor), "it is reaped")
            await came(lambda: len(children(supervisor)) == 1, "the next one starts")
        assert await (await client.nap.enqueue(0.0)).result(15) > 1
        assert "killed by signal 9" in worker.log()
        assert "Unknown child process" not in worker.log()
    await client.app.aclose()


# --- SIGHUP and signals for the application --------------------------------------------------------------


async def test_sighup_restarts_processes_one_at_a_time_with_the_new_code(client: Any, tmp_path: Path) -> None:
    with service(tmp_path, *WORKER, PROCESSES="2") as worker:
        await came(lambda: len(notes(tmp_path, "starts")) == 2, "both have started")
        running = await client.nap.enqueue(1.0)
        await began(tmp_path, 1)
        (tmp_path / "code").write_text("2")
        worker.process.send_signal(signal.SIGHUP)
        most = 0

        def renewed() -> bool:
            nonlocal most
            words = ("worker.process", "tidegate pool")
            pools = [pid for pid in children(worker.pid) if any(word in command(pid) for word in words)]
            most = max(most, len(pools))
            return "every process has restarted" in worker.log()

        await came(renewed, "every process has restarted")
        answers = [await (await client.release.enqueue()).result(10) for _ in range(10)]
        assert worker.process.poll() is None
    starts = notes(tmp_path, "starts")
    old, new = {pid for pid, *_ in starts[:2]}, {pid for pid, *_ in starts[2:]}
    assert [code for *_, code in starts] == ["1", "1", "2", "2"]
    assert {code for code, _ in answers} == {"2"}
    assert {pid for _, pid in answers} <= new
    assert await running.result(5) in old
    assert (await running.status()).run == 1
    assert most == 2
    await client.app.aclose()


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_sighup_with_code_that_cannot_be_imported_changes_nothing(client: Any, tmp_path: Path) -> None:
    with service(tmp_path, *WORKER) as worker:
        before = await (await client.release.enqueue()).result(15)
        (tmp_path / "code").write_text("broken")
        worker.process.send_signal(signal.SIGHUP)
        await came(lambda: "the old code keeps running" in worker.log(), "the failure is logged")
        assert await (await client.release.enqueue()).result(15) == before
        (tmp_path / "code").write_text("3")
        worker.process.send_signal(signal.SIGHUP)
        await came(lambda: "every process has restarted" in worker.log(), "it has restarted")
        assert (await (await client.release.enqueue()).result(15))[0] == "3"
    await client.app.aclose()


async def test_sighup_starts_added_pools_and_stops_removed_pools(client: Any, tmp_path: Path) -> None:
    with service(tmp_path, *WORKER) as worker:
        await came(lambda: "1 of 1 processes" in processes(tmp_path), "one process is ready")
        (tmp_path / "code").write_text("two pools")
        worker.process.send_signal(signal.SIGHUP)
        await came(lambda: "2 of 2 processes" in processes(tmp_path), "both pools are ready")
        (tmp_path / "code").write_text("1")
        worker.process.send_signal(signal.SIGHUP)
        await came(lambda: "1 of 1 processes" in processes(tmp_path), "one pool is left")
        await came(lambda: len(descendants(worker.pid)) == 1, "and one process")
    await client.app.aclose()


@pytest.mark.parametrize("listens", [True, False])
async def test_sigusr_signals_are_forwarded_to_pool_processes(
    client: Any, tmp_path: Path, listens: bool
) -> None:
    with service(tmp_path, *WORKER, **({"LISTEN": "1"} if listens else {})) as worker:
        pid = await (await client.nap.enqueue(0.0)).result(15)
        worker.process.send_signal(signal.SIGUSR1)
        if listens:
            await came(lambda: notes(tmp_path, "signals"), "the application heard it")
        assert await (await client.nap.enqueue(0.1)).result(15) == pid
    assert notes(tmp_path, "signals") == ([[pid, signal.SIGUSR1]] if listens else [])
    await client.app.aclose()


async def test_no_maintenance_leaves_the_jobs_to_a_scheduler_without_user_code(
    client: Any, tmp_path: Path
) -> None:
    with service(tmp_path, *WORKER, "--no-maintenance") as worker:
        handle = await client.nap.using(delay=0.1).enqueue(0.0)
        assert await (await client.nap.using().enqueue(0.6)).result(15) > 1
        assert (await handle.status()).state is State.SCHEDULED
        with service(tmp_path, "scheduler", TIDEGATE_PROMOTE="0.05") as scheduler:
            rows = await all_final(client.app, [handle.id])
            assert rows[handle.id].state is State.SUCCEEDED
            assert health(tmp_path, kind="scheduler").returncode == 0
            scheduler.process.send_signal(signal.SIGTERM)
            assert scheduler.wait(5) == 0
        assert worker.process.poll() is None
    await client.app.aclose()
