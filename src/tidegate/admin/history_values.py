"""What `app.admin` returns about what happened. Moments are datetimes in UTC; durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime
from tidegate.operations.statistics import period_fields
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow, StatisticsRow


@dataclass(frozen=True, slots=True)
class DeathCount:
    """How many tasks died in one period, by queue, function and reason."""

    at: datetime
    """When the period begins."""
    queue: str
    function: str
    reason: str
    deaths: int


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """The deaths that have one fingerprint: one error class, one message and one frame of your code."""

    fingerprint: str
    """16 hex digits, the same on every machine."""
    error_class: str
    """Empty if no exception was raised, as at a crash."""
    shape: str
    """The message with a word in angle brackets for each part that differs from task to task."""
    frame: str
    """The innermost frame of your code, `jobs/summaries.py:summarize`; empty if there is none."""
    deaths: int
    first_at: datetime
    last_at: datetime
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    reasons: tuple[str, ...]
    example_id: str
    """The task that died last. It may be redriven or deleted by now."""


@dataclass(frozen=True, slots=True)
class PeriodStatistics:
    """What happened to the tasks of one queue, function and upstream in one period."""

    at: datetime
    """When the period begins."""
    queue: str
    function: str
    upstream: str | None
    enqueued: int
    started: int
    """Runs that started."""
    succeeded: int
    dead: int
    cancelled: int
    retried: int
    """Runs after which the task waited for its next run."""
    released: int
    """Runs that were given back unfinished."""
    run_seconds: float
    """Of the runs that ended in the period, together."""
    wait_seconds: float
    """From ready to started, of the runs that ended in the period, together."""
    calls: int
    """Calls whose responses stated their usage."""
    input_tokens: int
    output_tokens: int
    run_p50: float | None
    """Half of the runs took no longer; an estimate in seconds. None without runs."""
    run_p95: float | None
    """95 in 100 runs took no longer."""
    wait_p50: float | None
    wait_p95: float | None


def death_count(row: DeathCountRow) -> DeathCount:
    """Return the public form of a count of deaths."""
    return DeathCount(to_datetime(row.at), row.queue, row.function, row.reason, row.deaths)


def failure_group(row: FailureGroupRow) -> FailureGroup:
    """Return the public form of a group of deaths."""
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
    )


def period_statistics(row: StatisticsRow) -> PeriodStatistics:
    """Return the public form of counters."""
    return PeriodStatistics(at=to_datetime(row.at), **period_fields(row))
