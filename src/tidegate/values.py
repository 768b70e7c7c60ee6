"""The values that the public API returns about tasks. Times are datetimes in UTC, by the store's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.context import Progress
from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals
from tidegate.store.rows import HistoryRow, TaskRow


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state and progress of a task, from one snapshot of the store."""

    task_id: str
    function: str
    """The name of the task function."""
    queue: str
    priority: Priority
    upstream: str | None
    """The upstream that the task function declares; None if it declares none."""
    tenant: str | None
    """The tenant of the task; None without one."""
    state: State
    run: int
    """Number of the present or last run; 0 before the first."""
    attempts: int
    """Charged runs, without the present one."""
    parks: int
    """Runs that were not charged because the upstream refused the call before it did any work."""
    crashes: int
    """Runs whose process died."""
    losses: int
    """Runs whose machine or supervisor was lost."""
    releases: int
    """Runs that were released before they made a call."""
    interruptions: int
    """Runs that were released after they made a call."""
    redrives: int
    """How often the task was redriven."""
    enqueued_at: datetime
    due_at: datetime | None
    """When the task becomes or became due."""
    held_until_at: datetime | None
    """When a due task that waits for a gate or budget may start; None if it does not."""
    held_by: str | None
    """What that task waits for: its upstream's `gate`, or the retry budget of `upstream` or `system`.
    `after`: a held task waits for other tasks."""
    started_at: datetime | None
    """Start of the present or last run."""
    finished_at: datetime | None
    deadline_at: datetime | None
    """The deadline; None without one."""
    redriven_at: datetime | None
    """When the task was last redriven."""
    worker_id: str | None
    """The worker process of the present or last run."""
    is_cancel_requested: bool
    """Whether a cancel was requested. The function of a running task is asked to stop."""
    reason: str
    """Why the last run failed, a value of `Reason`; empty if none did."""
    message: str
    """Message of the last failure, or why the task waits."""
    progress: Progress | None
    """The progress that the function reported last; None if it reported none."""
    usage: UsageTotals | None
    """Tokens that the calls of all runs used; None if no response stated them."""
    key: str | None
    """Its idempotency key."""
    max_attempts: int | None
    """The caller's own number, which overrides the task function's; None if the caller gave none."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One run of a task, or one action of a person on it."""

    kind: str
    """`run` for runs; else `enqueued`, `redriven`, `cancel requested`, `approved`, `rejected`…"""
    happened_at: datetime
    """Start of the run, or time of the action."""
    run: int | None
    """Number of the run; None for actions."""
    ended_at: datetime | None
    """End of the run; None while it runs."""
    worker_id: str
    outcome: str
    """`succeeded`, `retrying`, `released`, `dead`, `cancelled`; empty while it runs."""
    verdict: str
    """A value of `Verdict`; empty unless it failed."""
    reason: str
    """A value of `Reason`; empty unless it failed."""
    charge: str
    """The counter that the run added to: `attempt`, `park`, `crash`…"""
    error_class: str
    """Dotted name of the exception class."""
    message: str
    traceback: str
    status: int | None
    """HTTP status of the call that failed."""
    code: str
    """The provider's code for the failure."""
    request_id: str
    """The provider's id of the call that failed."""
    evidence: str
    """What decided the verdict: `status 503`, `rule on ValueError`."""
    next_run_at: datetime | None
    why: str
    """Why the task was retried, parked or ended."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a task's stream."""

    sequence: int
    """Number of the chunk within the task: starts at 1 and rises over all runs."""
    run: int
    """The number of the run that emitted the chunk."""
    stored_at: datetime
    data: Any
    """The value that the function emitted."""


def task_status(row: TaskRow) -> TaskStatus:
    """Return the public form of a task's row."""
    progress = None
    if row.progress_done is not None:
        progress = Progress(row.progress_done, row.progress_total, row.progress_note)
    return TaskStatus(
        task_id=row.id,
        function=row.function,
        queue=row.queue,
        priority=row.priority,
        upstream=row.upstream or None,
        tenant=row.tenant or None,
        state=row.state,
        run=row.run,
        attempts=row.counters.attempts,
        parks=row.counters.parks,
        crashes=row.counters.crashes,
        losses=row.counters.losses,
        releases=row.counters.releases,
        interruptions=row.counters.interruptions,
        redrives=row.redrives,
        enqueued_at=to_datetime(row.enqueued_at),
        due_at=to_datetime_or_none(row.due_at),
        held_until_at=to_datetime_or_none(row.held_until_at),
        held_by=row.held_by or None,
        started_at=to_datetime_or_none(row.started_at),
        finished_at=to_datetime_or_none(row.finished_at),
        deadline_at=to_datetime_or_none(row.deadline_at),
        redriven_at=to_datetime_or_none(row.redriven_at),
        worker_id=row.worker_id,
        is_cancel_requested=row.cancel_requested,
        reason=row.reason,
        message=row.message,
        progress=progress,
        usage=row.usage,
        key=row.key,
        max_attempts=row.max_attempts,
        labels=row.labels,
    )


def history_entry(row: HistoryRow) -> HistoryEntry:
    """Return the public form of a row of a task's history."""
    return HistoryEntry(
        kind=row.kind,
        happened_at=to_datetime(row.at),
        run=row.run,
        ended_at=to_datetime_or_none(row.ended_at),
        worker_id=row.worker_id,
        outcome=row.outcome,
        verdict=row.verdict,
        reason=row.reason,
        charge=row.charge,
        error_class=row.error_class,
        message=row.message,
        traceback=row.traceback,
        status=row.status,
        code=row.code,
        request_id=row.request_id,
        evidence=row.evidence,
        next_run_at=to_datetime_or_none(row.next_run_at),
        why=row.why,
    )
