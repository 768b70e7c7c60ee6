"""The demo: for real in small, in full among the slow tests, and its judgement on made-up outcomes."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tidegate.domain.outcome import Counters
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import ConfigError, OptionError
from tidegate.store.rows import HistoryRow, TaskRow
from tidegate.testing import demo
from tidegate.testing.demo.counts import DemoCounts
from tidegate.testing.demo.demo_run import DemoOutcome
from tidegate.testing.demo.example import SummaryJob, make_jobs
from tidegate.testing.demo.plan import DemoPlan
from tidegate.testing.demo.report import make_report, table_rows
from tidegate.testing.demo.view import LineView, LiveView, split_width
from tidegate.testing.provider import ProviderCall

KEYS = [
    "succeeded",
    "dead",
    "lost",
    "unfinished",
    "provider_calls",
    "duplicate_paid_calls",
    "throttled_calls",
    "duration_s",
]


class Demo:
    """`tidegate demo` with other numbers, in a process of its own."""

    def __init__(self, directory: Path, *, tasks: int, seconds: float) -> None:
        program = (
            "import sys, pathlib\n"
            "from tidegate.testing.demo import run_demo\n"
            f"sys.exit(run_demo(json=True, tasks={tasks}, seconds={seconds}, "
            f"directory=pathlib.Path({str(directory)!r})))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.directory = directory

    def finish(self, within: float) -> tuple[int, str, str]:
        try:
            stdout, stderr = self.process.communicate(timeout=within)
        except BaseException:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=30)
            raise
        return self.process.returncode, stdout, stderr

    def processes(self) -> list[int]:
        """Return the processes that run in its directory."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(str(self.directory)):
                    found.append(process.pid)
        return found


def verify(code: int, stdout: str, stderr: str, tasks: int) -> dict[str, Any]:
    assert code == 0, stderr
    (line,) = stdout.splitlines()
    report: dict[str, Any] = json.loads(line)
    refused = sum(job.refused for job in make_jobs(tasks))
    assert list(report)[: len(KEYS)] == KEYS
    assert report["succeeded"] == tasks - refused
    assert report["dead_by_reason"] == {"content_policy": refused}
    assert report["lost"] == report["unfinished"] == 0
    assert report["throttled_calls"] > 0
    assert report["duplicate_paid_calls_unexplained"] == 0
    assert report["duplicate_paid_calls"] == report["duplicate_paid_calls_by_kill"]
    assert report["running_when_killed"] > 0
    assert report["duplicate_paid_calls"] <= report["running_when_killed"]
    for part in ("429:", "kill -9:", "outage:", "every task is final"):
        assert part in stderr
    return report


def test_a_small_demo_loses_no_task_when_its_worker_is_killed(tmp_path: Path) -> None:
    small = Demo(tmp_path / "demo", tasks=20, seconds=6)
    verify(*small.finish(within=50), tasks=20)
    assert small.processes() == []
    assert (tmp_path / "demo" / "queue.db").is_file()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_full_demo_loses_nothing_and_takes_about_a_minute(tmp_path: Path) -> None:
    full = Demo(tmp_path / "demo", tasks=300, seconds=60)
    report = verify(*full.finish(within=180), tasks=300)
    assert report["duration_s"] < 120


def test_the_demo_serves_the_api_with_a_read_only_token(tmp_path: Path) -> None:
    started = Demo(tmp_path / "demo", tasks=20, seconds=30)
    try:
        assert started.process.stderr is not None
        for line in started.process.stderr:
            if found := re.search(r'curl -H "Authorization: Bearer (\S+)" (http://\S+)/queues', line):
                break
        token, url = found.groups()
        with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
            assert client.get(f"{url}/queues").json()["queues"][0]["queue"] == "summaries"
            (one,) = client.get(f"{url}/tasks", params={"limit": 1}).json()["tasks"]
            assert client.post(f"{url}/tasks/{one['task_id']}/cancel").status_code == 403
            assert client.get(f"{url}/queues", headers={"Authorization": ""}).status_code == 401
    finally:
        started.process.send_signal(signal.SIGTERM)
        started.finish(within=30)
    assert started.processes() == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path, number: int, code: int) -> None:
    started = Demo(tmp_path / "demo", tasks=20, seconds=30)
    assert started.process.stderr is not None
    next(line for line in started.process.stderr if re.search(r"[1-9]\d* running", line))  # everything is up
    assert len(started.processes()) >= 3
    started.process.send_signal(number)
    returned, stdout, _ = started.finish(within=30)
    assert returned == code
    assert stdout == ""
    assert started.processes() == []


def test_a_missing_package_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(ConfigError, match=r'uvicorn.*pip install "tidegate\[demo\]"'):
        demo.run_demo()


def test_numbers_that_cannot_work_and_a_used_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="0 tasks"):
        demo.run_demo(tasks=0)
    with pytest.raises(OptionError, match="1 seconds"):
        demo.run_demo(seconds=1)
    (tmp_path / "queue.db").touch()
    with pytest.raises(OptionError, match="another demo"):
        demo.run_demo(directory=tmp_path)


def test_every_job_asks_for_something_else_and_a_tenth_is_refused() -> None:
    jobs = make_jobs(700)
    assert len({(job.path, job.audience, job.parts) for job in jobs}) == 700
    assert sum(job.refused for job in make_jobs(300)) == 30
    assert make_jobs(50) == make_jobs(50)


def test_the_plan_is_scaled_and_kills_between_the_other_faults() -> None:
    plan = DemoPlan.make(300, 60)
    assert plan.throttle_at + plan.throttle_seconds < plan.kill_at < plan.outage_at
    assert plan.tasks * plan.latency / plan.slots == pytest.approx(45)
    assert DemoPlan.make(20, 6).kill_at == pytest.approx(plan.kill_at / 10)


# --- the judgement ----------------------------------------------------------------------------------------


def entry(run: int, outcome: str, **facts: Any) -> HistoryRow:
    return HistoryRow("run", run * 10.0, run=run, ended_at=run * 10.0 + 5, outcome=outcome, **facts)


def row(task_id: str, state: State, run: int, **facts: Any) -> TaskRow:
    plain: dict[str, Any] = {
        "id": task_id,
        "function": "summarise",
        "queue": "summaries",
        "priority": Priority.NORMAL,
        "upstream": "",
        "tenant": "",
        "state": state,
        "run": run,
        "counters": Counters(),
        "redrives": 0,
        "enqueued_at": 0.0,
        "due_at": None,
        "started_at": None,
        "finished_at": None,
        "worker_id": None,
        "cancel_requested": False,
        "reason": "",
        "message": "",
    }
    return TaskRow(**(plain | facts))


def call(task_id: str, *, billed: bool = True, outcome: str = "answered") -> ProviderCall:
    return ProviderCall(
        "req", 0.0, "POST", "/v1/chat/completions", "m", "hash", task_id, 200, billed, 1, 1, outcome
    )


def outcome() -> DemoOutcome:
    """One task that was lost under the kill and paid twice, one that violates the policy."""
    lost = {"reason": "crash", "charge": "loss", "why": "lease ran out"}
    throttled = {"reason": "rate_limit", "charge": "park", "why": "parked"}
    refusal = {"reason": "content_policy", "charge": "attempt", "why": "permanent"}
    return DemoOutcome(
        jobs={"a": SummaryJob("a.txt", "all", 30, False), "b": SummaryJob("b.txt", "all", 30, True)},
        rows={
            "a": row("a", State.SUCCEEDED, 3, counters=Counters(losses=1, parks=1)),
            "b": row("b", State.DEAD, 1, counters=Counters(attempts=1), reason="content_policy"),
        },
        histories={
            "a": (entry(1, "retrying", **lost), entry(2, "retrying", **throttled), entry(3, "succeeded")),
            "b": (entry(1, "dead", **refusal),),
        },
        calls=(
            call("a"),
            call("a", billed=False, outcome="throttled requests"),
            call("a"),
            call("b", billed=False, outcome="content_policy_violation"),
        ),
        killed_running=frozenset({"a"}),
        was_killed=True,
        duration_seconds=12.34,
        directory=Path(),
    )


def test_a_successful_demo_has_no_faults_and_its_numbers_add_up() -> None:
    report = make_report(outcome())
    assert report.faults == []
    plain = report.to_plain()
    assert {key: plain[key] for key in KEYS} == {
        "succeeded": 1,
        "dead": 1,
        "lost": 0,
        "unfinished": 0,
        "provider_calls": 4,
        "duplicate_paid_calls": 1,
        "throttled_calls": 1,
        "duration_s": 12.3,
    }
    assert plain["duplicate_paid_calls_by_kill"] == 1
    assert plain["tasks_by_attempts"] == {"1": 2}
    shown = dict(table_rows(report))
    assert shown["dead"] == "1   (1 by content_policy)"
    assert shown["runs not charged"] == "1 waited for the provider, 1 lost with their worker"
    assert "1 by the kill, under which 1 task ran; 0 unexplained" in shown["  paid twice"]
    assert shown["re-runs"] == "2   (0 without a recorded reason)"


def _with_row(task_id: str, **changes: Any) -> DemoOutcome:
    good = outcome()
    changed = dataclasses.replace(good.rows[task_id], **changes)
    return dataclasses.replace(good, rows={**good.rows, task_id: changed})


def lost_a_row() -> DemoOutcome:
    good = outcome()
    return dataclasses.replace(good, rows={"b": good.rows["b"]})


def never_finished() -> DemoOutcome:
    return _with_row("a", state=State.RETRYING)


def dead_for_another_reason() -> DemoOutcome:
    return _with_row("b", reason="rate_limit")


def reran_without_a_reason() -> DemoOutcome:
    good = outcome()
    silent = (entry(1, "retrying"), *good.histories["a"][1:])
    return dataclasses.replace(good, histories={**good.histories, "a": silent})


def called_without_a_recorded_run() -> DemoOutcome:
    good = outcome()
    return dataclasses.replace(good, histories={**good.histories, "a": good.histories["a"][1:]})


def dead_though_it_was_harmless() -> DemoOutcome:
    return dataclasses.replace(
        outcome(), jobs={task: SummaryJob(task, "all", 30, False) for task in ("a", "b")}
    )


def paid_three_times() -> DemoOutcome:
    return dataclasses.replace(outcome(), calls=(*outcome().calls, call("a")))


def not_killed() -> DemoOutcome:
    return dataclasses.replace(outcome(), was_killed=False)


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (lost_a_row, "1 task was lost"),
        (never_finished, "1 task not finished in time"),
        (reran_without_a_reason, "1 re-run without a recorded reason"),
        (called_without_a_recorded_run, "a made 3 calls in 2 recorded runs"),
        (dead_for_another_reason, "b violates the policy and ended dead (rate_limit)"),
        (dead_though_it_was_harmless, "b should have succeeded and ended dead"),
        (paid_three_times, "1 repeated payment without an explanation"),
        (not_killed, "done before the worker could be killed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_went_wrong_is_a_fault(broken: Callable[[], DemoOutcome], fault: str) -> None:
    report = make_report(broken())
    assert any(fault in found for found in report.faults), report.faults
    assert report.to_plain()["ok"] is False


# --- the view ---------------------------------------------------------------------------------------------


def test_plain_lines_are_rare_and_events_are_not() -> None:
    stream = io.StringIO()
    view = LineView(stream)
    for tenth in range(40):
        view.show(DemoCounts(tenth / 10, 9, ready=4, running=2, dead=1, calls=5, throttled=1))
    view.show_event(4.0, "kill -9")
    view.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "2 succeeded, 1 dead, 2 running, 0 retrying, 4 ready; 5 calls, 1 throttled" in lines[0]
    assert lines[-1] == "  4.0 s  kill -9"


def test_the_live_view_shows_counts_and_the_last_events() -> None:
    stream = io.StringIO()
    view = LiveView(stream)
    for number in range(30):
        view.show_event(float(number), f"event {number}")
    view.show(DemoCounts(31.0, 10, ready=2, running=3, waiting=1, dead=1))
    view.close()
    shown = stream.getvalue()
    assert "succeeded 3" in shown
    assert "4/10" in shown
    assert "event 29" in shown
    assert "event 3 " not in shown


@pytest.mark.parametrize("counts", [[3, 1, 2, 0, 4], [1, 0, 0, 0, 0], [299, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
def test_the_bar_is_as_wide_as_it_should_be(counts: list[int]) -> None:
    cells = split_width(counts, 60)
    assert sum(cells) == (60 if any(counts) else 0)
    assert all(cell >= 0 for cell in cells)
