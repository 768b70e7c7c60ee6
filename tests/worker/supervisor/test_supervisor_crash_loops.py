"""Crash loops are reported in the log, to health checks and by the doctor."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_support import came, health, notes, service

from support import APPS, load_app
from tidegate.worker.supervisor.crash_loop import (
    LOG_INTERVAL_SECONDS,
    MAX_DEATHS,
    WINDOW_SECONDS,
    CrashLoopDetector,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


def test_a_few_deaths_are_not_a_crash_loop(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    loop = CrashLoopDetector("llm", clock)
    for _ in range(MAX_DEATHS - 1):
        loop.record_death("exit code 1")
    assert loop.describe() == ""
    assert errors(caplog) == []


def test_a_crash_loop_is_logged_once_a_minute_with_pool_count_and_last_cause(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    loop = CrashLoopDetector("llm", clock)
    for number in range(MAX_DEATHS + 3):
        clock.now += 1
        loop.record_death(f"exit code {number}")
    assert errors(caplog) == [
        "crash loop: pool llm: 5 of its processes died within 5 minutes, the last one: exit code 4"
    ]
    clock.now += LOG_INTERVAL_SECONDS
    loop.record_death("killed by signal 11 (SIGSEGV)")
    assert len(errors(caplog)) == 2
    assert "9 of its processes" in errors(caplog)[1]
    assert "the last one: killed by signal 11 (SIGSEGV)" in loop.describe()


def test_a_crash_loop_ends_when_no_process_died_for_long_enough(clock: Clock) -> None:
    loop = CrashLoopDetector("llm", clock)
    for _ in range(MAX_DEATHS):
        loop.record_death("exit code 1")
    assert loop.describe()
    clock.now += WINDOW_SECONDS + 1
    assert loop.describe() == ""


@pytest.mark.anyio
async def test_a_pool_whose_processes_die_at_start_is_reported_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    client: Any = load_app("supervised", tmp_path, monkeypatch)
    (tmp_path / "die at start").touch()
    with service(tmp_path, "worker", "supervised:app", "--name", "w1") as worker:
        await came(lambda: "crash loop: pool default" in worker.log(), "the loop is told", within=45)
        asked = health(tmp_path)
        assert asked.returncode == 1
        assert "crash loop: pool default" in asked.stderr
        assert "exit code 3" in asked.stderr
        assert health(tmp_path, "--live").returncode == 0
        checks = {check["name"]: check for check in doctor(worker.env)["checks"]}
        assert checks["worker"]["level"] == "warn"
        assert "crash loop: pool default" in checks["worker"]["detail"]
        (tmp_path / "die at start").unlink()
        handle = await client.nap.enqueue(0.0)
        assert await handle.result(40) == notes(tmp_path, "starts")[-1][0]
    await client.app.aclose()


def doctor(env: dict[str, str]) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "doctor", "--json", "--app", "supervised:app"],
        cwd=APPS,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    report: dict[str, Any] = json.loads(ran.stdout)
    return report
