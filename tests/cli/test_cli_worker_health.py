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
from cli_support import Place

from support import worker_process
from tidegate.worker.supervisor.health import Health, HealthDoor, ask, run_directory


def health(place: Place, *problems: str, name: str = "w1", kind: str = "worker") -> Health:
    url = f"sqlite:///{place.database}"
    return Health(kind, name, os.getpid(), url, "0", "1 of 1 processes ready", list(problems))


class Running:
    """A service that answers as the test says, on a loop of its own."""

    def __init__(self, answer: Health) -> None:
        self.answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._door = HealthDoor(answer.kind, answer.name, lambda: self.answer)
        asyncio.run_coroutine_threadsafe(self._door.open(), self._loop).result(5)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._door.close(), self._loop).result(5)
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


def test_where_nothing_runs_the_exit_code_is_3(place: Place) -> None:
    for args in (["worker", "health"], ["worker", "health", "--live"], ["scheduler", "health"]):
        assert "answers in" in place.run(*args, code=3).stderr


def test_a_worker_without_problems_lives_and_is_ready(place: Place, start: Start) -> None:
    start(health(place))

    assert (
        place.run("worker", "health").stdout
        == f"worker w1 (process {os.getpid()}): ok, 1 of 1 processes ready\n"
    )
    assert (
        place.run("worker", "health", "--live").stdout
        == f"worker w1 (process {os.getpid()}): ok, 1 of 1 processes ready\n"
    )
    assert place.json("worker", "health") == {
        "healthy": True,
        "workers": [{"name": "w1", "pid": os.getpid(), "status": "1 of 1 processes ready", "problems": []}],
    }


def test_a_worker_with_a_problem_lives_and_is_not_ready(place: Place, start: Start) -> None:
    running = start(health(place, "0 of 1 pool processes are ready"))

    result = place.run("worker", "health", "--ready", code=1)
    assert result.stderr == f"worker w1 (process {os.getpid()}): 0 of 1 pool processes are ready\n"
    assert place.json("worker", "health", code=1)["healthy"] is False
    assert place.run("worker", "health", "--live").stdout.startswith("worker w1 (process ")
    running.answer = health(place)
    place.run("worker", "health", "--ready")


def test_a_worker_whose_database_cannot_be_used_is_not_ready(empty: Place, start: Start) -> None:
    start(health(empty))
    assert "there is no database" in empty.run("worker", "health", code=1).stderr
    assert not empty.database.exists()
    empty.database.parent.mkdir()
    empty.database.write_text("just some text, long enough to be no database at all" * 20)
    empty.run("worker", "health", code=1)
    empty.run("worker", "health", "--live")


def test_a_worker_on_another_schema_is_not_ready(place: Place, start: Start) -> None:
    import apsw

    start(health(place))
    database = apsw.Connection(str(place.database))
    database.execute("INSERT INTO migration (number, name, applied_at) VALUES (999, 'of the future', 0)")
    database.execute("UPDATE compatible SET since = 999")
    database.close()

    assert "newer (999)" in place.run("worker", "health", code=1).stderr


def test_one_of_several_is_asked_by_its_name_and_all_must_be_well_without(place: Place, start: Start) -> None:
    start(health(place, name="well"))
    start(health(place, "it stops", name="a/b \ud800"))

    place.run("worker", "health", "--name", "well")
    assert "it stops" in place.run("worker", "health", code=1).stderr
    assert "no worker named nobody" in place.run("worker", "health", "--name", "nobody", code=3).stderr


def test_workers_and_schedulers_are_told_apart(place: Place, start: Start) -> None:
    start(health(place, kind="scheduler", name="s1"))

    place.run("worker", "health", code=3)
    assert place.json("scheduler", "health")["schedulers"][0]["name"] == "s1"


def test_what_hangs_does_not_live_and_what_is_dead_is_not_there(place: Place) -> None:
    directory = run_directory()
    directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(directory / "worker-00000000-hung.sock"))
        hung.listen()
        began_at = time.monotonic()
        result = place.run("worker", "health", "--live", "--timeout", "0.3", code=1)
        assert time.monotonic() - began_at < 3
        assert "it hangs" in result.stderr
    place.run("worker", "health", "--live", code=3)


@pytest.mark.anyio
async def test_sockets_of_the_dead_are_swept_and_young_ones_are_left(place: Place) -> None:
    directory = run_directory()
    directory.mkdir(mode=0o700)
    old, young = directory / "worker-00000000-old.sock", directory / "worker-00000000-new.sock"
    for path in (old, young):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    os.utime(old, (0, 0))
    door = HealthDoor("worker", "w1", lambda: health(place))
    await door.open()
    assert sorted(directory.glob("*00000000*")) == [young]
    await door.close()
    await door.close()
    assert list(directory.iterdir()) == [young]


@pytest.mark.anyio
async def test_a_directory_that_others_can_write_to_is_refused_and_the_service_works_all_the_same(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    directory = run_directory()
    directory.mkdir()
    directory.chmod(0o777)
    door = HealthDoor("worker", "w1", lambda: health(place))
    await door.open()
    assert "cannot ask this process" in caplog.text
    await door.close()
    assert ask("worker", None, 1.0) == []


@pytest.mark.anyio
async def test_a_socket_that_a_cleaner_removed_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.worker.supervisor.health.MEND_SECONDS", 0.0)
    door = HealthDoor("worker", "w1", lambda: health(place))
    await door.open()
    for removed in (run_directory().glob("*.sock"), [run_directory()]):
        for path in removed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        await door.mend()
        answers = await asyncio.to_thread(ask, "worker", "w1", 5.0)
        assert [answer and answer.name for answer in answers] == ["w1"]
    await door.close()
    assert list(run_directory().iterdir()) == []


def test_a_long_path_to_the_directory_is_no_hindrance(
    place: Place, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_RUN", str(place.directory / "a" / ("very-long-name-" * 10) / "run"))
    start(health(place))

    place.run("worker", "health")


def test_the_doctor_asks_those_on_this_database(place: Place, start: Start) -> None:
    start(health(place, "crash loop: pool llm: 7 of its processes died", name="mine"))
    start(replace(health(place, "it stops", name="other"), database_url="sqlite:////elsewhere.db"))

    checks = [check for check in place.json("doctor")["checks"] if check["name"] == "worker"]
    assert [(check["level"], check["detail"]) for check in checks] == [
        ("warn", f"mine (process {os.getpid()}): crash loop: pool llm: 7 of its processes died")
    ]


def test_the_help_of_both_is_there(place: Place) -> None:
    assert "worker health" in place.run("worker", "--help").stdout
    shown = place.run("worker", "health", "--help").stdout
    assert shown.startswith("Usage: tidegate worker health")
    assert "--live" in shown
    assert place.run("scheduler", "health", "--help").stdout.startswith("Usage: tidegate scheduler health")


def test_a_real_worker_is_ready_in_the_end_and_hangs_while_it_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_RUN", str(tmp_path / "run"))
    with worker_process("bodies:app", tmp_path) as worker:
        until = time.monotonic() + 20
        while (answers := ask("worker", None, 5.0)) == [] or answers[0] is None or answers[0].problems:
            assert time.monotonic() < until
            time.sleep(0.05)
        worker.signal(signal.SIGSTOP)
        assert ask("worker", None, 0.3) == [None]
        worker.signal(signal.SIGCONT)
        assert ask("worker", None, 5.0)[0] is not None
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert ask("worker", None, 1.0) == []
