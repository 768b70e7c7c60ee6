"""What `app.admin` returns about steps, provider jobs and doubts. Moments are datetimes in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.provider_job import JobState
from tidegate.domain.step import DoubtState, OnDoubt, StepState
from tidegate.store.provider_job_rows import ProviderJobRow
from tidegate.store.step_rows import DoubtRow, StepRow


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that was sent and had no definite answer."""

    id: int
    """The number of the entry in the ledger."""
    task_id: str
    function: str
    queue: str
    tenant: str | None
    step: str
    """The name of the step that made it."""
    key: str
    """The identity of the step within its task."""
    run: int
    """The run that made it."""
    state: DoubtState
    on_doubt: OnDoubt
    """What the step of the entry does in doubt: the option `in_doubt`."""
    cause: str
    """Why the call is in doubt."""
    upstream: str
    """The upstream that the call went to; empty if that is unknown."""
    request_id: str
    """What the provider calls the request; empty if it did not say."""
    sent_at: datetime
    """When the step of the call was begun."""
    found_at: datetime
    resolved_at: datetime | None
    resolved_by: str
    """Who decided; empty if nobody did."""
    note: str
    input_tokens: int | None = None
    """The input tokens that the call's response stated; None: not known."""
    output_tokens: int | None = None
    """The output tokens that the call's response stated; None: not known."""


@dataclass(frozen=True, slots=True)
class StepStatus:
    """A recorded step of a task."""

    name: str
    key: str
    """The identity of the step within its task."""
    state: StepState
    run: int
    """The run that began it last, or whose result it has."""
    begun_at: datetime
    """When the step was last begun."""
    ended_at: datetime | None
    size: int
    """The number of bytes of the step's result."""
    upstream: str
    cached_from: str | None = None
    """The task whose cached result the step got, or `another tenant`; None if the step did the work."""


@dataclass(frozen=True, slots=True)
class ProviderJobStatus:
    """A provider job of a task."""

    name: str
    key: str
    """The identity of the job within its task."""
    provider: str
    """The provider's name; empty if it is not known."""
    state: JobState
    job_id: str
    """The job's id at the provider; empty until it is known."""
    submits: int
    """The number of the submission, from 1: of the whole job, or of its remaining items."""
    polls: int
    failed_polls: int
    """Since the last good one."""
    begun_at: datetime
    submitted_at: datetime | None
    polled_at: datetime | None
    next_poll_at: datetime | None
    """None if the job is not polled any more."""
    done: float | None
    """Progress, as far as the latest poll reported it."""
    total: float | None
    note: str
    error: str
    """The error of the latest poll that failed, or why the job has no result."""
    items: int
    """How many items of a batch have finished."""
    cancel_requested_at: datetime | None
    ended_at: datetime | None


def doubt(row: DoubtRow) -> Doubt:
    """Return the public value of an entry of the ledger."""
    return Doubt(
        id=row.id,
        task_id=row.task_id,
        function=row.function,
        queue=row.queue,
        tenant=row.tenant or None,
        step=row.step,
        key=row.key,
        run=row.run,
        state=row.state,
        on_doubt=row.on_doubt,
        cause=row.cause,
        upstream=row.upstream,
        request_id=row.request_id,
        sent_at=to_datetime(row.sent_at),
        found_at=to_datetime(row.found_at),
        resolved_at=to_datetime_or_none(row.resolved_at),
        resolved_by=row.resolved_by,
        note=row.note,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
    )


def step_status(row: StepRow) -> StepStatus:
    """Return the public value of a recorded step."""
    return StepStatus(
        name=row.name,
        key=row.key,
        state=row.state,
        run=row.run,
        begun_at=to_datetime(row.begun_at),
        ended_at=to_datetime_or_none(row.ended_at),
        size=row.size,
        upstream=row.upstream,
        cached_from=row.cached_from or None,
    )


def provider_job_status(row: ProviderJobRow) -> ProviderJobStatus:
    """Return the public value of a provider job."""
    return ProviderJobStatus(
        name=row.name,
        key=row.key,
        provider=row.provider,
        state=row.state,
        job_id=row.job_id,
        submits=row.generation,
        polls=row.polls,
        failed_polls=row.failed_polls,
        begun_at=to_datetime(row.begun_at),
        submitted_at=to_datetime_or_none(row.submitted_at),
        polled_at=to_datetime_or_none(row.polled_at),
        next_poll_at=to_datetime(row.next_poll_at) if row.is_polled else None,
        done=row.done,
        total=row.total,
        note=row.note,
        error=row.error,
        items=row.items,
        cancel_requested_at=to_datetime_or_none(row.cancel_requested_at),
        ended_at=to_datetime_or_none(row.ended_at),
    )
