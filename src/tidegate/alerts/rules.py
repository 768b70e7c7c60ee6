"""The rules: what each one measures, its default settings, and the text of its alert. Pure.

Each rule has a section of its name in `docs/how-to/alerts.md`: what the alert means, what to check, what to
do.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tidegate.alerts.observation import Observation, RunTimes
from tidegate.alerts.rule_settings import RuleSettings, Unit
from tidegate.domain.text import counted, format_duration
from tidegate.store.alert_rows import Severity

_MINUTE = 60.0
_STUCK_SECONDS = 5 * _MINUTE
DATABASE = "database"
"""The subject of rules about the database server."""


class SubjectKind(StrEnum):
    """The kind of thing that a rule measures."""

    QUEUE = "queue"
    FUNCTION = "function"
    UPSTREAM = "upstream"
    POOL = "pool"
    SCHEDULE = "schedule"
    BUDGET = "budget"
    TASK = "task"
    SERVER = "server"
    WORK = "work"
    """A queue or a function."""


class Measurement(NamedTuple):
    """The value of a rule for one subject."""

    subject: str
    value: float
    detail: str = ""
    """A further sentence for people."""
    runs: float = math.inf
    """How many runs the value comes from."""
    least_limit: float = 0.0
    """The lowest limit that applies: the usual value may be higher than the limit in the settings."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    name: str
    about: SubjectKind
    unit: Unit
    summary: str
    """The condition in a few words."""
    text: str
    """The text of an alert about its subject; `{value}` is the value with its unit."""
    command: str
    """The command that shows more about the alert; `{subject}` is the subject."""
    measure: Callable[[Observation], Iterable[Measurement]]
    defaults: RuleSettings

    def describe(self, subject: str, value: float) -> str:
        """Return a sentence without a full stop, such as `queue emails: 1,200 tasks wait`."""
        name = subject if self.about in (SubjectKind.SERVER, SubjectKind.WORK) else f"{self.about} {subject}"
        return f"{name}: {self.text.format(value=format_value(self.unit, value))}"

    def show_command(self, subject: str) -> str:
        """Return the command that shows more about a subject."""
        return self.command.format(subject=shlex.quote(subject))


def format_value(unit: Unit, value: float) -> str:
    """Return a value with its unit, such as `12 min`, `35%`, `3.2 times`, `1,200`."""
    match unit:
        case Unit.SECONDS:
            return format_duration(value) if math.isfinite(value) else "no end in sight"
        case Unit.SHARE:
            return f"{value:.0%}"
        case Unit.FACTOR:
            return f"{value:.3g} times"
        case Unit.COUNT:
            return f"{value:,.0f}"


def _drain(seen: Observation) -> Iterable[Measurement]:
    for queue in seen.queues:
        if queue.drain_seconds is None:
            continue
        # Nothing finishes while long tasks run: "no end in sight" counts only once a task has waited long.
        is_young = math.isinf(queue.drain_seconds) and queue.oldest_seconds <= _STUCK_SECONDS
        seconds = 0.0 if is_young else queue.drain_seconds
        yield Measurement(queue.name, seconds, queue.drain_why or counted(queue.runnable, "runnable task"))


def _depth(seen: Observation) -> Iterable[Measurement]:
    for queue in seen.queues:
        yield Measurement(queue.name, queue.runnable)


def _oldest(seen: Observation) -> Iterable[Measurement]:
    for queue in seen.queues:
        yield Measurement(queue.name, queue.oldest_seconds)


def _failure_rate(seen: Observation) -> Iterable[Measurement]:
    for queue in seen.queues:
        if queue.runs:
            share = queue.failed_runs / queue.runs
            detail = f"{queue.failed_runs:,} of {counted(queue.runs, 'run')} failed"
            yield Measurement(queue.name, share, detail, queue.runs)


def _dead_surge(seen: Observation) -> Iterable[Measurement]:
    for queue in seen.queues:
        yield Measurement(queue.name, queue.deaths, queue.surge_why, least_limit=queue.surge_limit)


_USUAL_RUNS = 200
"""With fewer runs than this in the last week there is no usual run time."""
_SHORT_SECONDS = 1.0
"""A p95 below this never counts as slow: for short tasks it would be noise."""


def _slowness(name: str, times: RunTimes) -> Iterable[Measurement]:
    if times.p95 is None or times.usual_p95 is None or times.usual_runs < _USUAL_RUNS:
        return
    detail = f"p95 is {format_duration(times.p95)}, usually {format_duration(times.usual_p95)}"
    factor = times.p95 / max(times.usual_p95, _SHORT_SECONDS)
    yield Measurement(name, factor, detail, times.runs)


def _run_time(seen: Observation) -> Iterable[Measurement]:
    for function, times in seen.functions:
        yield from _slowness(function, times)


def _latency(seen: Observation) -> Iterable[Measurement]:
    for upstream in seen.upstreams:
        if upstream.times is not None:
            yield from _slowness(upstream.name, upstream.times)


def _task_runs(seen: Observation) -> Iterable[Measurement]:
    for task in seen.busy_tasks:
        yield Measurement(task.task_id, task.runs, f"{task.function} in queue {task.queue}")


def _task_calls(seen: Observation) -> Iterable[Measurement]:
    for task in seen.busy_tasks:
        yield Measurement(task.task_id, task.calls, f"{task.function} in queue {task.queue}")


def _gate_parked(seen: Observation) -> Iterable[Measurement]:
    for upstream in seen.upstreams:
        if upstream.is_closed:
            detail = f"the reason is {upstream.reason}" if upstream.reason else ""
            yield Measurement(upstream.name, upstream.waiting, detail)


def _worker_gone(seen: Observation) -> Iterable[Measurement]:
    for pool in seen.pools:
        detail = f"{', '.join(pool.names)}; live worker processes of the pool: {pool.live}"
        yield Measurement(pool.name, pool.lost, detail)


def _schedule_missed(seen: Observation) -> Iterable[Measurement]:
    for schedule in seen.schedules:
        yield Measurement(schedule.name, schedule.missed, schedule.detail)


def _retry_budget(seen: Observation) -> Iterable[Measurement]:
    for budget in seen.budgets:
        yield Measurement(budget.name, budget.held)


def _connections(seen: Observation) -> Iterable[Measurement]:
    if seen.connections is not None and seen.connections.most > 0:
        used, most = seen.connections.used, seen.connections.most
        yield Measurement(DATABASE, used / most, f"{used:,} of {most:,}")


def _unserved(seen: Observation) -> Iterable[Measurement]:
    for each in seen.unserved:
        yield Measurement(each.subject, each.tasks, each.why)


_ALL = (
    Rule(
        "drain",
        SubjectKind.QUEUE,
        Unit.SECONDS,
        "the backlog takes long to clear",
        "clearing the backlog takes {value}",
        "tidegate status",
        _drain,
        RuleSettings(5 * _MINUTE, hold_seconds=10 * _MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "depth",
        SubjectKind.QUEUE,
        Unit.COUNT,
        "many runnable tasks",
        "runnable tasks: {value}",
        "tidegate status",
        _depth,
        RuleSettings(500, hold_seconds=15 * _MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "oldest",
        SubjectKind.QUEUE,
        Unit.SECONDS,
        "a runnable task has waited for long",
        "the oldest runnable task has waited {value}",
        "tidegate tasks ls --queue {subject} --state ready",
        _oldest,
        RuleSettings(30 * _MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "failure_rate",
        SubjectKind.QUEUE,
        Unit.SHARE,
        "many runs fail",
        "{value} of the runs of the last ten minutes failed",
        "tidegate stats --queue {subject} --since 1h",
        _failure_rate,
        RuleSettings(0.2, minimum=20, hold_seconds=3 * _MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "dead_surge",
        SubjectKind.QUEUE,
        Unit.COUNT,
        "more tasks die than usual",
        "tasks that died in the last ten minutes: {value}",
        "tidegate dead groups --queue {subject} --since 1h",
        _dead_surge,
        RuleSettings(8, Severity.CRITICAL, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "run_time",
        SubjectKind.FUNCTION,
        Unit.FACTOR,
        "runs take longer than usual",
        "the p95 run time is {value} the usual one",
        "tidegate stats --function {subject} --since 6h",
        _run_time,
        RuleSettings(3.0, minimum=30, hold_seconds=10 * _MINUTE, clear_seconds=10 * _MINUTE),
    ),
    Rule(
        "latency",
        SubjectKind.UPSTREAM,
        Unit.FACTOR,
        "an upstream answers more slowly than usual",
        "the p95 run time of its tasks is {value} the usual one",
        "tidegate stats --upstream {subject} --since 6h",
        _latency,
        RuleSettings(3.0, minimum=30, hold_seconds=10 * _MINUTE, clear_seconds=10 * _MINUTE),
    ),
    Rule(
        "task_runs",
        SubjectKind.TASK,
        Unit.COUNT,
        "a task runs again and again",
        "it has run {value} times",
        "tidegate tasks show {subject}",
        _task_runs,
        RuleSettings(50, clear=1.0, clear_seconds=0.0),
    ),
    Rule(
        "task_calls",
        SubjectKind.TASK,
        Unit.COUNT,
        "a task makes call after call",
        "it has made {value} calls",
        "tidegate tasks show {subject}",
        _task_calls,
        RuleSettings(1_000, clear=1.0, clear_seconds=0.0),
    ),
    Rule(
        "gate_parked",
        SubjectKind.UPSTREAM,
        Unit.COUNT,
        "an upstream has been parked for long",
        "its gate is closed, and tasks wait: {value}",
        "tidegate upstreams",
        _gate_parked,
        RuleSettings(0, Severity.CRITICAL, hold_seconds=10 * _MINUTE, clear_seconds=2 * _MINUTE),
    ),
    Rule(
        "worker_gone",
        SubjectKind.POOL,
        Unit.COUNT,
        "a worker stopped sending heartbeats",
        "worker processes whose heartbeats stopped: {value}",
        "tidegate status",
        _worker_gone,
        RuleSettings(0, Severity.CRITICAL, clear_seconds=0.0),
    ),
    Rule(
        "schedule_missed",
        SubjectKind.SCHEDULE,
        Unit.COUNT,
        "a schedule did not tick as planned",
        "ticks that did not fire: {value}",
        "tidegate schedules show {subject}",
        _schedule_missed,
        RuleSettings(0, clear_seconds=0.0),
    ),
    Rule(
        "retry_budget",
        SubjectKind.BUDGET,
        Unit.COUNT,
        "a retry budget is used up",
        "due tasks that the retry budget holds back: {value}",
        "tidegate budget",
        _retry_budget,
        RuleSettings(0, hold_seconds=5 * _MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "connections",
        SubjectKind.SERVER,
        Unit.SHARE,
        "the database has few connections left",
        "{value} of its connections are in use",
        "tidegate doctor",
        _connections,
        RuleSettings(0.85, clear=0.9, hold_seconds=_MINUTE, clear_seconds=5 * _MINUTE),
    ),
    Rule(
        "unserved",
        SubjectKind.WORK,
        Unit.COUNT,
        "tasks wait that no live worker runs",
        "tasks that no live worker runs: {value}",
        "tidegate status",
        _unserved,
        RuleSettings(0, Severity.CRITICAL, hold_seconds=_MINUTE, clear_seconds=_MINUTE),
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in _ALL})
"""Every rule by its name, in the order in which they are listed."""


def measure(seen: Observation) -> dict[tuple[str, str], Measurement]:
    """Return the measurements of all rules, by rule and subject."""
    return {(rule.name, each.subject): each for rule in RULES.values() for each in rule.measure(seen)}
