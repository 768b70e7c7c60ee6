"""Check the outcome of the demo, and make the report as a table or JSON. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Charge
from tidegate.domain.states import FINAL, State
from tidegate.domain.text import counted
from tidegate.store.rows import TaskRow
from tidegate.testing.demo.demo_run import DemoOutcome
from tidegate.testing.provider.ledger import THROTTLED

_NEVER_ANSWERED = (Charge.CRASH.value, Charge.LOSS.value)
_IN_DOUBT = (Reason.NETWORK.value, Reason.TIMEOUT.value)


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The report. Counts are of tasks unless stated otherwise."""

    tasks: int
    succeeded: int
    dead_by_reason: dict[str, int]
    lost: int
    """Accepted tasks that the store does not have."""
    unfinished: int
    """Accepted tasks that were not final when the demo gave up."""
    attempts: dict[int, int]
    """Number of tasks by charged attempts, including a successful one."""
    waits: dict[str, int]
    """Runs that charged no attempt, by the counter that they charged."""
    provider_calls: int
    throttled_calls: int
    refused_connections: int
    """Runs that ended without reaching the provider."""
    paid_twice: int
    """Payments beyond the first for one task."""
    paid_twice_by_kill: int
    """The part of `paid_twice` for tasks that ran when the worker was killed."""
    paid_twice_unexplained: int
    """The calls of `paid_twice` that no lost or unanswered run explains."""
    reruns: int
    """Runs after a task's first."""
    reruns_unexplained: int
    """The runs of `reruns` that follow a run without a recorded reason."""
    running_when_killed: int
    was_killed: bool
    duration_seconds: float
    surprises: tuple[str, ...]
    """A sentence about each task that did not run or end as it should have."""

    @property
    def dead(self) -> int:
        """All dead tasks."""
        return sum(self.dead_by_reason.values())

    @property
    def faults(self) -> list[str]:
        """A sentence about everything that makes the demo fail."""
        found = list(self.surprises)
        if self.lost:
            found.append(f"{counted(self.lost, 'task')} {'was' if self.lost == 1 else 'were'} lost")
        if self.unfinished:
            found.append(
                f"{counted(self.unfinished, 'task')} not finished in time: "
                "this machine may be too slow or too busy"
            )
        if not self.was_killed:
            found.append("the tasks were done before the worker could be killed")
        if self.paid_twice_unexplained:
            found.append(f"{counted(self.paid_twice_unexplained, 'repeated payment')} without an explanation")
        if self.reruns_unexplained:
            found.append(f"{counted(self.reruns_unexplained, 're-run')} without a recorded reason")
        return found

    def to_plain(self) -> dict[str, Any]:
        """Return the report for JSON, with the most used members first."""
        return {
            "succeeded": self.succeeded,
            "dead": self.dead,
            "lost": self.lost,
            "unfinished": self.unfinished,
            "provider_calls": self.provider_calls,
            "duplicate_paid_calls": self.paid_twice,
            "throttled_calls": self.throttled_calls,
            "duration_s": round(self.duration_seconds, 1),
            "ok": not self.faults,
            "tasks": self.tasks,
            "dead_by_reason": self.dead_by_reason,
            "tasks_by_attempts": {str(number): count for number, count in self.attempts.items()},
            "uncharged_runs": self.waits,
            "running_when_killed": self.running_when_killed,
            "duplicate_paid_calls_by_kill": self.paid_twice_by_kill,
            "duplicate_paid_calls_unexplained": self.paid_twice_unexplained,
            "reruns": self.reruns,
            "reruns_unexplained": self.reruns_unexplained,
            "faults": self.faults,
        }


def make_report(outcome: DemoOutcome) -> DemoReport:
    """Check every history and return the report."""
    rows = outcome.rows
    paid, by_kill, unexplained = _count_repeated_payments(outcome)
    present = [rows[task_id] for task_id in outcome.jobs if task_id in rows]
    final = [row for row in present if row.state in FINAL]
    runs = {row.id: [entry for entry in outcome.histories[row.id] if entry.kind == "run"] for row in present}
    entries = [entry for history in runs.values() for entry in history]
    repeated = [entry for history in runs.values() for entry in history[:-1]]
    charges = Counter(entry.charge for entry in entries)
    throttled = set(THROTTLED.values())
    return DemoReport(
        tasks=len(outcome.jobs),
        succeeded=sum(row.state is State.SUCCEEDED for row in present),
        dead_by_reason=_format_counts(row.reason for row in present if row.state is State.DEAD),
        lost=len(outcome.jobs) - len(present),
        unfinished=len(present) - len(final),
        attempts=dict(sorted(Counter(_attempts(row) for row in final).items())),
        waits={
            charge.value: charges[charge.value]
            for charge in (Charge.PARK, Charge.LOSS, Charge.CRASH, Charge.RELEASE)
            if charges[charge.value]
        },
        provider_calls=len(outcome.calls),
        throttled_calls=sum(call.outcome in throttled for call in outcome.calls),
        refused_connections=sum(entry.reason == Reason.NETWORK for entry in entries),
        paid_twice=paid,
        paid_twice_by_kill=by_kill,
        paid_twice_unexplained=unexplained,
        reruns=len(repeated),
        reruns_unexplained=sum(not (entry.reason or entry.why) for entry in repeated),
        running_when_killed=len(outcome.killed_running),
        was_killed=outcome.was_killed,
        duration_seconds=outcome.duration_seconds,
        surprises=(*_unexpected_outcomes(outcome), *_unrecorded_runs(outcome)),
    )


def _attempts(row: TaskRow) -> int:
    return row.counters.attempts + (1 if row.state is State.SUCCEEDED else 0)


def _format_counts(parts: Iterable[str]) -> dict[str, int]:
    return dict(Counter(parts).most_common())


def _count_repeated_payments(outcome: DemoOutcome) -> tuple[int, int, int]:
    """Return the payments beyond the first for a task: all, those by the kill, those unexplained."""
    billed: defaultdict[str, int] = defaultdict(int)
    for call in outcome.calls:
        billed[call.idempotency_key] += call.billed
    again = {task_id: times - 1 for task_id, times in billed.items() if times > 1}
    doubts = {
        task_id: sum(
            entry.charge in _NEVER_ANSWERED or entry.reason in _IN_DOUBT
            for entry in outcome.histories.get(task_id, ())
        )
        for task_id in again
    }
    by_kill = sum(times for task_id, times in again.items() if task_id in outcome.killed_running)
    unexplained = sum(max(0, times - doubts[task_id]) for task_id, times in again.items())
    return sum(again.values()), by_kill, unexplained


def _unexpected_outcomes(outcome: DemoOutcome) -> Iterable[str]:
    """Yield a sentence about each final task that did not end as its text requires."""
    for task_id, job in outcome.jobs.items():
        row = outcome.rows.get(task_id)
        if row is None or row.state not in FINAL:
            continue
        ended = f"{row.state} ({row.reason})" if row.reason else str(row.state)
        if job.refused and not (row.state is State.DEAD and row.reason == Reason.CONTENT_POLICY):
            yield f"{task_id} violates the policy and ended {ended}"
        if not job.refused and row.state is not State.SUCCEEDED:
            yield f"{task_id} should have succeeded and ended {ended}: {row.message}"


def _unrecorded_runs(outcome: DemoOutcome) -> Iterable[str]:
    """Yield a sentence about each task that called the provider more often than the store recorded runs."""
    calls = Counter(call.idempotency_key for call in outcome.calls)
    for task_id in outcome.jobs:
        runs = sum(entry.kind == "run" for entry in outcome.histories.get(task_id, ()))
        if calls[task_id] > runs:
            yield f"{task_id} made {counted(calls[task_id], 'call')} in {counted(runs, 'recorded run')}"


def table_rows(report: DemoReport) -> list[tuple[str, str]]:
    """Return the rows of the report's table: a name and a value."""
    dead = ", ".join(f"{count} by {reason}" for reason, count in report.dead_by_reason.items())
    attempts = ", ".join(
        f"{counted(count, 'task')} took {number}" for number, count in report.attempts.items()
    )
    waits = ", ".join(f"{count} {_WAITS[charge]}" for charge, count in report.waits.items())
    return [
        ("tasks", str(report.tasks)),
        ("succeeded", str(report.succeeded)),
        ("dead", f"{report.dead}   ({dead})" if dead else "0"),
        ("lost", str(report.lost)),
        *([("unfinished", str(report.unfinished))] if report.unfinished else []),
        ("attempts", attempts),
        ("runs not charged", waits or "none"),
        ("provider calls", str(report.provider_calls)),
        ("  throttled (429)", str(report.throttled_calls)),
        ("  paid twice", _paid_twice(report)),
        ("refused connections", str(report.refused_connections)),
        ("re-runs", f"{report.reruns}   ({report.reruns_unexplained} without a recorded reason)"),
        ("duration", f"{report.duration_seconds:.1f} s"),
    ]


_WAITS = {
    "park": "waited for the provider",
    "loss": "lost with their worker",
    "crash": "crashed",
    "release": "released",
}


def _paid_twice(report: DemoReport) -> str:
    if report.paid_twice == 0:
        return "0"
    return (
        f"{report.paid_twice}   ({report.paid_twice_by_kill} by the kill, under which "
        f"{counted(report.running_when_killed, 'task')} ran; {report.paid_twice_unexplained} unexplained)"
    )
