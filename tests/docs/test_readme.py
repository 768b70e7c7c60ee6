"""The README's tour, done literally: enqueue in one process, kill the worker in another, start it again."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pages import ROOT, all_blocks, blocks, commands
from sessions import Session

from tidegate.cli import program

README = ROOT / "README.md"
CHINESE = ROOT / "README.zh.md"
FILES = {block.file: block.text for block in blocks(README, "python") if block.file}
TIDEGATE = [sys.executable, "-c", "from tidegate.cli import main; main()"]
FINAL = {"succeeded", "dead", "cancelled"}


class Tour:
    """An empty directory with the tour's two files, and its terminals.

    Args:
        directory: Where.
        provider: The address of the simulated provider.
    """

    def __init__(self, directory: Path, provider: str) -> None:
        self.directory = directory
        for name, text in FILES.items():
            (directory / name).write_text(text)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        self.env = settings | {
            "TIDEGATE_LEASE": "1",
            "TIDEGATE_REAP": "0.2",
            "TIDEGATE_SCRATCH": str(directory / "scratch"),
            "OPENAI_BASE_URL": provider,
            "OPENAI_API_KEY": "simulated",
        }

    def python(self, script: str) -> list[str]:
        return self._run([sys.executable, script])

    def tidegate(self, *words: str) -> list[str]:
        return self._run([*TIDEGATE, *words])

    def printed(self, start: str, task_id: str) -> list[str]:
        """Do the command of the README that starts so, on one task."""
        (line,) = {line for line in commands(README) if line.startswith(start)}
        return self.tidegate(*[task_id if word == "ID" else word for word in shlex.split(line)[1:]])

    def states(self) -> dict[str, str]:
        """Return the states by task. This is asked again and again, so it starts no interpreter."""
        with contextlib.chdir(self.directory):
            done = CliRunner(env=self.env).invoke(program, ["tasks", "ls", "--limit", "1000", "--json"])
        assert done.exit_code == 0, done.output
        return {row["task_id"]: row["state"] for row in map(json.loads, done.stdout.splitlines())}

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


class Provider:
    """The simulated provider in its own process. Its answers take ten minutes until `answer_quickly`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def answer_quickly(self) -> None:
        request = urllib.request.Request(
            self.url.removesuffix("/v1") + "/_sim/settings",
            data=json.dumps({"latency_seconds": 0.02}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200


@pytest.fixture
def provider() -> Iterator[Provider]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate.testing.provider", "--latency", "600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Provider(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def _until(truth: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
    ends_at = time.monotonic() + within
    while not truth():
        assert time.monotonic() < ends_at, f"not within {within} s: {what}"
        time.sleep(0.1)


def _is_alive(pid: int) -> bool:
    try:
        # A zombie answers to signals; nobody but its parent can reap it.
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


def _kill_and_start_again(tour: Tour, provider: Provider, *, whole_worker: bool) -> list[str]:
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
    provider.answer_quickly()

    with tour.worker():
        _until(lambda: set(tour.states().values()) <= FINAL, "every task is final")
    return ids


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "whole_worker",
    [pytest.param(False, id="its supervisor", marks=pytest.mark.slow), pytest.param(True, id="all of it")],
)
def test_after_a_kill_and_a_new_start_every_task_of_the_tour_is_final(tmp_path, provider, whole_worker):
    tour = Tour(tmp_path, provider.url)

    *texts, refused = _kill_and_start_again(tour, provider, whole_worker=whole_worker)

    assert tour.states() == dict.fromkeys(texts, "succeeded") | {refused: "dead"}
    (letter,) = map(json.loads, tour.tidegate("dead", "ls", "--json"))
    assert letter["reason"] == "content_policy"
    assert tour.printed("tidegate dead redrive ID", refused)
    with tour.worker():
        _until(lambda: tour.states()[refused] == "succeeded", "the corrected task has succeeded")
    assert "redriven" in "\n".join(tour.printed("tidegate tasks show ID", refused))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [README, CHINESE], ids=["English", "Chinese"])
def test_the_tour_typed_as_it_is_printed(tmp_path, page):
    directory = tmp_path / "empty"
    directory.mkdir()

    with Session(directory) as session:
        session.do(page)

        assert session.output("worker").count("succeeded:") > 12


def test_the_first_code_stands_near_the_top_and_is_ten_statements_that_call_an_sdk():
    first = blocks(README, "python")[0]
    statements = [node for node in ast.walk(ast.parse(first.text)) if isinstance(node, ast.stmt)]

    assert first.line < 15
    assert len(statements) <= 10
    assert "AsyncOpenAI(" in first.text
    assert "transport()" in first.text


def test_the_chinese_readme_shows_the_same_code_and_the_same_commands():
    english = [(block.note, block.language, block.text) for block in all_blocks(README) if block.language]

    assert [
        (block.note, block.language, block.text) for block in all_blocks(CHINESE) if block.language
    ] == english


def test_the_readme_has_no_benchmarks():
    assert "tasks/s" not in README.read_text(encoding="utf-8")
