"""The README's tour, done literally: enqueue in one process, kill the worker in another, start it again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pages import ROOT, blocks, commands

README = ROOT / "README.md"
FILES = {block.file: block.text for block in blocks(README, "python") if block.file}
TIDEGATE = [sys.executable, "-c", "from tidegate.cli import main; main()"]
FINAL = {"succeeded", "dead", "cancelled"}

_SLEEP = "sleep(0.02 if __import__('os').path.exists('go') else 600)"


class Tour:
    """An empty directory with the tour's two files, and its terminals.

    Args:
        directory: Where.
        quick: Short leases, and bodies that last until `go` is called, instead of the literal times.
    """

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        for name, text in FILES.items():
            (directory / name).write_text(text.replace("sleep(0.5)", _SLEEP) if quick else text)
        clocks = {"TIDEGATE_LEASE": "1", "TIDEGATE_REAP": "0.2"} if quick else {}
        settings = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        self.env = settings | clocks | {"TIDEGATE_SCRATCH": str(directory / "scratch")}

    def go(self) -> None:
        """Let bodies end from now on."""
        (self.directory / "go").touch()

    def python(self, script: str) -> list[str]:
        return self._run([sys.executable, script])

    def tidegate(self, *words: str) -> list[str]:
        return self._run([*TIDEGATE, *words])

    def printed(self, start: str, task_id: str) -> list[str]:
        """Do the command of the README that starts so, on one task."""
        (line,) = {line for line in commands(README) if line.startswith(start)}
        return self.tidegate(*[task_id if word == "ID" else word for word in shlex.split(line)[1:]])

    def states(self) -> dict[str, str]:
        lines = self.tidegate("tasks", "ls", "--limit", "1000", "--json")
        return {row["task_id"]: row["state"] for row in map(json.loads, lines)}

    def pool_pids(self) -> list[int]:
        (overview,) = self.tidegate("status", "--json")
        return [worker["pid"] for worker in json.loads(overview)["workers"] if worker["live"]]

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        (line,) = {
            line for line in commands(README) if line.startswith("tidegate worker") and "&" not in line
        }
        with (self.directory / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [*TIDEGATE, *shlex.split(line)[1:]], cwd=self.directory, env=self.env, stderr=log
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(timeout=30)

    def _run(self, command: list[str]) -> list[str]:
        done = subprocess.run(
            command, cwd=self.directory, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (command[-4:], done.stderr)
        return done.stdout.splitlines()


def _until(truth: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
    ends_at = time.monotonic() + within
    while not truth():
        assert time.monotonic() < ends_at, f"not within {within} s: {what}"
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        # A zombie answers to signals; nobody but its parent can reap it.
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


def _kill_and_start_again(tour: Tour, *, whole_worker: bool) -> list[str]:
    """Go through the tour up to the point where every task is final; return the ids."""
    ids = tour.python("submit.py")
    assert tour.states() == dict.fromkeys(ids, "ready")

    with tour.worker() as worker:
        _until(lambda: "running" in tour.states().values(), "a task runs")
        pids = tour.pool_pids()
        os.kill(worker.pid, signal.SIGKILL)
        if whole_worker:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    assert set(tour.states()) == set(ids)
    assert not set(tour.states().values()) <= FINAL
    _until(lambda: not any(map(_is_alive, pids)), "its pool processes are gone")
    tour.go()

    with tour.worker():
        _until(lambda: set(tour.states().values()) <= FINAL, "every task is final")
    return ids


@pytest.mark.timeout(180)
@pytest.mark.parametrize("whole_worker", [False, True], ids=["its supervisor", "all of it"])
def test_after_a_kill_and_a_new_start_every_task_of_the_tour_is_final(tmp_path, whole_worker):
    tour = Tour(tmp_path, quick=True)

    *texts, empty = _kill_and_start_again(tour, whole_worker=whole_worker)

    assert tour.states() == dict.fromkeys(texts, "succeeded") | {empty: "dead"}
    (letter,) = map(json.loads, tour.tidegate("dead", "ls", "--json"))
    assert letter["message"] == "nothing to summarize"
    assert tour.printed("tidegate dead redrive ID", empty)
    with tour.worker():
        _until(lambda: tour.states()[empty] == "succeeded", "the corrected task has succeeded")
    assert "redriven" in "\n".join(tour.printed("tidegate tasks show ID", empty))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tour_with_its_literal_times(tmp_path):
    tour = Tour(tmp_path, quick=False)

    ids = _kill_and_start_again(tour, whole_worker=False)

    assert sorted(tour.states().values()) == ["dead", *["succeeded"] * (len(ids) - 1)]
