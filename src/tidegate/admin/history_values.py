"""What `app.admin` returns about the past. Moments are datetimes in UTC; durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.operations.failure_groups import GroupWithState, UnknownFailure
from tidegate.operations.statistics import period_fields
from tidegate.policy.failure_state import FailureState
from tidegate.store.history_rows import DeathCountRow, StatisticsRow


@dataclass(frozen=True, slots=True)
class DeathCount:
    """How many tasks died in one period, by queue, function and reason."""

    at: datetime
    """The start of the period."""
    queue: str
    function: str
    reason: str
    deaths: int


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The deaths that have one fingerprint: one error class, one message and one frame of your code."""

    fingerprint: str
    """The fingerprint: 16 hex digits, the same on every machine."""
    error_class: str
    """The class of the exception; empty if no exception was raised, for example after a crash."""
    shape: str
    """The message. A word in angle brackets stands for each part that differs from task to task."""
    frame: str
    """The innermost frame of your code, such as `jobs/summaries.py:summarize`; empty if there is none."""
    deaths: int
    first_at: datetime
    last_at: datetime
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    reasons: tuple[str, ...]
    example_id: str
    """The task that died last. By now it may have been redriven or deleted."""
    state: FailureState
    is_reopened: bool
    """Whether a task died of this failure after the group was resolved."""
    marked_at: datetime | None
    """When the group was last resolved or muted; None for never."""
    marked_by: str
    note: str
    until_at: datetime | None
    """When the mute ends; None for never."""


@dataclass(frozen=True, slots=True)
class UnknownFailureGroup:
    """The failed attempts with one fingerprint that no rule classifies."""

    fingerprint: str
    """16 hex digits, the same on every machine."""
    error_class: str
    shape: str
    """The message. A word in angle brackets stands for each part that differs from task to task."""
    frame: str
    """The innermost frame of your code; empty if there is none."""
    attempts: int
    tasks: int
    succeeded: int
    """How many of the tasks with such attempts succeeded later."""
    first_at: datetime
    last_at: datetime
    functions: tuple[str, ...]
    sample: str
    """The message of the last attempt, with secrets masked, at most 100 characters."""
    sample_id: str
    """The task of the last attempt."""
    rule: str
    """The line of code that adds a rule for this failure."""
    reviewed_at: datetime | None
    """When a person reviewed the group; None for never."""
    reviewed_by: str
    note: str


@dataclass(frozen=True, slots=True)
class PeriodStatistics:
    """Counters of the tasks of one queue, function and upstream in one period."""

    at: datetime
    """The start of the period."""
    queue: str
    function: str
    upstream: str | None
    enqueued: int
    started: int
    """How many runs started."""
    succeeded: int
    dead: int
    cancelled: int
    retried: int
    """How many runs ended with a wait for the task's next run."""
    released: int
    """How many runs were given back unfinished."""
    run_seconds: float
    """The total run time of runs that ended in the period."""
    wait_seconds: float
    """The total time from ready to started of runs that ended in the period."""
    calls: int
    """How many calls had responses that stated their usage."""
    input_tokens: int
    output_tokens: int
    run_p50: float | None
    """Estimated seconds that half of the runs did not exceed; None without runs."""
    run_p95: float | None
    """Estimated seconds that 95 % of the runs did not exceed; None without runs."""
    wait_p50: float | None
    wait_p95: float | None


def death_count(row: DeathCountRow) -> DeathCount:
    """Return the public form of a count of deaths."""
    return DeathCount(to_datetime(row.at), row.queue, row.function, row.reason, row.deaths)


def failure_group(found: GroupWithState) -> FailureGroup:
    """Return the public form of a group of deaths."""
    row, state = found.group, found.state
    return FailureGroup(
        fingerprint=row.fingerprint,
        error_class=row.error_class,
        shape=row.shape,
        frame=row.frame,
        deaths=row.deaths,
        first_at=to_datetime(row.first_at),
        last_at=to_datetime(row.last_at),
        functions=row.functions,
        queues=row.queues,
        reasons=row.reasons,
        example_id=row.example_id,
        state=state.state,
        is_reopened=state.is_reopened,
        marked_at=to_datetime_or_none(state.marked_at),
        marked_by=state.marked_by,
        note=state.note,
        until_at=to_datetime_or_none(state.until_at),
    )


def unknown_failure_group(found: UnknownFailure) -> UnknownFailureGroup:
    """Return the public form of a group of attempts that no rule classifies."""
    row, mark = found.row, found.reviewed
    return UnknownFailureGroup(
        fingerprint=row.fingerprint,
        error_class=row.error_class,
        shape=row.shape,
        frame=row.frame,
        attempts=row.attempts,
        tasks=row.tasks,
        succeeded=row.succeeded,
        first_at=to_datetime(row.first_at),
        last_at=to_datetime(row.last_at),
        functions=row.functions,
        sample=row.sample,
        sample_id=row.sample_id,
        rule=found.rule,
        reviewed_at=None if mark is None else to_datetime(mark.marked_at),
        reviewed_by="" if mark is None else mark.marked_by,
        note="" if mark is None else mark.note,
    )


def period_statistics(row: StatisticsRow) -> PeriodStatistics:
    """Return the public form of counters."""
    return PeriodStatistics(at=to_datetime(row.at), **period_fields(row))
