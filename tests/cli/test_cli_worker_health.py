"""`tidegate worker health` and `tidegate scheduler health`, as an exec probe calls them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_support import Workspace

from support import worker_process
from tidegate.worker.supervisor.health import Health, HealthSocket, query_health, run_directory


def health(workspace: Workspace, *problems: str, name: str = "w1", kind: str = "worker") -> Health:
    url = f"sqlite:///{workspace.database}"
    return Health(kind, name, os.getpid(), url, "0", "1 of 1 processes ready", list(problems))


class Running:
    """A service that answers as the test says, on a loop of its own."""

    def __init__(self, answer: Health) -> None:
        self.answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._health_socket = HealthSocket(answer.kind, answer.name, lambda: self.answer)
        asyncio.run_coroutine_threadsafe(self._health_socket.open(), self._loop).result(5)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._health_socket.close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


Start = Callable[[Health], Running]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Running] = []

    def start(answer: Health) -> Running:
        running.append(Running(answer))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_health_exits_with_3_if_nothing_runs(workspace: Workspace) -> None:
    for args in (["worker", "health"], ["worker", "health", "--live"], ["scheduler", "health"]):
        assert "answers in" in workspace.run(*args, code=3).stderr


def test_a_worker_without_problems_is_live_and_ready(workspace: Workspace, start: Start) -> None:
    start(health(workspace))

    assert (
        workspace.run("worker", "health").stdout
        == f"worker w1 (process {os.getpid()}): ok, 1 of 1 processes ready\n"
    )
    assert (
        workspace.run("worker", "health", "--live").stdout
        == f"worker w1 (process {os.getpid()}): ok, 1 of 1 processes ready\n"
    )
    assert workspace.json("worker", "health") == {
        "healthy": True,
        "workers": [{"name": "w1", "pid": os.getpid(), "status": "1 of 1 processes ready", "problems": []}],
    }


def test_a_worker_with_a_problem_is_live_and_not_ready(workspace: Workspace, start: Start) -> None:
    running = start(health(workspace, "0 of 1 pool processes are ready"))

    result = workspace.run("worker", "health", "--ready", code=1)
    assert result.stderr == f"worker w1 (process {os.getpid()}): 0 of 1 pool processes are ready\n"
    assert workspace.json("worker", "health", code=1)["healthy"] is False
    assert workspace.run("worker", "health", "--live").stdout.startswith("worker w1 (process ")
    running.answer = health(workspace)
    workspace.run("worker", "health", "--ready")


def test_a_worker_whose_database_cannot_be_used_is_not_ready(empty: Workspace, start: Start) -> None:
    start(health(empty))
    assert "there is no database" in empty.run("worker", "health", code=1).stderr
    assert not empty.database.exists()
    empty.database.parent.mkdir()
    empty.database.write_text("just some text, long enough to be no database at all" * 20)
    empty.run("worker", "health", code=1)
    empty.run("worker", "health", "--live")


def test_a_worker_on_another_schema_is_not_ready(workspace: Workspace, start: Start) -> None:
    import apsw

    start(health(workspace))
    database = apsw.Connection(str(workspace.database))
    database.execute("INSERT INTO migration (number, name, applied_at) VALUES (999, 'of the future', 0)")
    database.execute("UPDATE compatible SET since = 999")
    database.close()

    assert "newer (999)" in workspace.run("worker", "health", code=1).stderr


def test_health_checks_one_service_by_name_or_all(workspace: Workspace, start: Start) -> None:
    start(health(workspace, name="well"))
    start(health(workspace, "it stops", name="a/b \ud800"))

    workspace.run("worker", "health", "--name", "well")
    assert "it stops" in workspace.run("worker", "health", code=1).stderr
    assert "no worker named nobody" in workspace.run("worker", "health", "--name", "nobody", code=3).stderr


def test_workers_and_schedulers_are_distinguished(workspace: Workspace, start: Start) -> None:
    start(health(workspace, kind="scheduler", name="s1"))

    workspace.run("worker", "health", code=3)
    assert workspace.json("scheduler", "health")["schedulers"][0]["name"] == "s1"


def test_a_hanging_service_is_not_live_and_a_dead_one_is_not_found(workspace: Workspace) -> None:
    directory = run_directory()
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(directory / "worker-00000000-hung.sock"))
        hung.listen()
        began_at = time.monotonic()
        result = workspace.run("worker", "health", "--live", "--timeout", "0.3", code=1)
        assert time.monotonic() - began_at < 3
        assert "it hangs" in result.stderr
    workspace.run("worker", "health", "--live", code=3)


@pytest.mark.anyio
async def test_sockets_of_the_dead_are_swept_and_young_ones_are_left(workspace: Workspace) -> None:
    directory = run_directory()
    directory.mkdir(mode=0o700)
    old, young = directory / "worker-00000000-old.sock", directory / "worker-00000000-new.sock"
    for path in (old, young):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    os.utime(old, (0, 0))
    health_socket = HealthSocket("worker", "w1", lambda: health(workspace))
    await health_socket.open()
    assert sorted(directory.glob("*00000000*")) == [young]
    await health_socket.close()
    await health_socket.close()
    assert list(directory.iterdir()) == [young]


@pytest.mark.anyio
async def test_a_directory_that_others_can_write_to_is_refused_and_the_service_works_all_the_same(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    directory = run_directory()
    directory.mkdir()
    directory.chmod(0o777)
    health_socket = HealthSocket("worker", "w1", lambda: health(workspace))
    await health_socket.open()
    assert "cannot check this process" in caplog.text
    await health_socket.close()
    assert query_health("worker", None, 1.0) == []


@pytest.mark.anyio
async def test_a_socket_that_a_cleaner_removed_is_made_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.worker.supervisor.health.RECREATE_SECONDS", 0.0)
    health_socket = HealthSocket("worker", "w1", lambda: health(workspace))
    await health_socket.open()
    for removed in (run_directory().glob("*.sock"), [run_directory()]):
        for path in removed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        await health_socket.recreate_if_removed()
        answers = await asyncio.to_thread(query_health, "worker", "w1", 5.0)
        assert [answer and answer.name for answer in answers] == ["w1"]
    await health_socket.close()
    assert list(run_directory().iterdir()) == []


def test_a_long_path_to_the_directory_is_no_hindrance(
    workspace: Workspace, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_RUN", str(workspace.directory / "a" / ("very-long-name-" * 10) / "run"))
    start(health(workspace))

    workspace.run("worker", "health")


def test_the_doctor_asks_those_on_this_database(workspace: Workspace, start: Start) -> None:
    start(health(workspace, "crash loop: pool llm: 7 of its processes died", name="mine"))
    start(replace(health(workspace, "it stops", name="other"), database_url="sqlite:////elsewhere.db"))

    checks = [check for check in workspace.json("doctor")["checks"] if check["name"] == "worker"]
    assert [(check["level"], check["detail"]) for check in checks] == [
        ("warn", f"mine (process {os.getpid()}): crash loop: pool llm: 7 of its processes died")
    ]


def test_the_help_of_both_is_there(workspace: Workspace) -> None:
    assert "worker health" in workspace.run("worker", "--help").stdout
    shown = workspace.run("worker", "health", "--help").stdout
    assert shown.startswith("Usage: tidegate worker health")
    assert "--live" in shown
    assert workspace.run("scheduler", "health", "--help").stdout.startswith(
        "Usage: tidegate scheduler health"
    )


def test_a_real_worker_becomes_ready_and_times_out_while_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_RUN", str(tmp_path / "run"))
    with worker_process("bodies:app", tmp_path) as worker:
        until = time.monotonic() + 20
        while (
            (answers := query_health("worker", None, 5.0)) == [] or answers[0] is None or answers[0].problems
        ):
            assert time.monotonic() < until
            time.sleep(0.05)
        worker.signal(signal.SIGSTOP)
        assert query_health("worker", None, 0.3) == [None]
        worker.signal(signal.SIGCONT)
        assert query_health("worker", None, 5.0)[0] is not None
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert query_health("worker", None, 1.0) == []
