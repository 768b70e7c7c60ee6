"""Types of the bodies about steps, provider jobs and doubts, and how the store's rows fill them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

import msgspec

from tidegate.store.provider_job_rows import ProviderJobRow
from tidegate.store.step_rows import DoubtRow, StepRow


class StepOut(msgspec.Struct):
    """A recorded step of a task."""

    name: str
    key: str
    """The identity of the step within its task."""
    state: str
    """`open` (begun, without a recorded answer), `done`, `failed` or `rejected`."""
    run: int
    """The run that began it last, or whose result it has."""
    begun_at: float
    """When the step was last begun."""
    ended_at: float | None
    size: int
    """The number of bytes of the step's result."""
    upstream: str
    """The upstream that the call went to; empty if that is unknown."""
    cached_from: str | None
    """The task whose cached result it got, or `another tenant`; null if the work was done."""


class StepsOut(msgspec.Struct):
    """The recorded steps of a task, in the order in which they were first begun. Results are not shown."""

    steps: list[StepOut]


class ProviderJobOut(msgspec.Struct):
    """A provider job of a task."""

    name: str
    key: str
    """The identity of the job within its task."""
    provider: str
    """The provider's name; empty if it is not known."""
    state: str
    """`submitting`, `running`, `done`, `failed`, `timed_out`, `cancelled` or `cancel_failed`."""
    job_id: str
    """The job's id at the provider; empty until it is known."""
    submits: int
    """The number of the submission, from 1: of the whole job, or of its remaining items."""
    polls: int
    failed_polls: int
    """Since the last good one."""
    begun_at: float
    submitted_at: float | None
    polled_at: float | None
    next_poll_at: float | None
    """Null if the job is not polled any more."""
    done: float | None
    """Progress, as far as the latest poll reported it."""
    total: float | None
    note: str
    error: str
    """The error of the latest poll that failed, or why the job has no result."""
    items: int
    """How many items of a batch have finished."""
    cancel_requested_at: float | None
    ended_at: float | None


class ProviderJobsOut(msgspec.Struct):
    """The provider jobs of a task, in the order in which they were begun. Results are not shown."""

    provider_jobs: list[ProviderJobOut]


class DoubtOut(msgspec.Struct):
    """A call that was sent and had no definite answer."""

    doubt_id: int
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
    attempt: int
    """How often that run had begun the step."""
    state: str
    """`open`, `repeated`, `reconciled`, `answered`, `paid_twice`, `accepted` or `rejected`."""
    on_doubt: str
    """What the step of the entry does in doubt: `repeat`, `ask` or `reconcile`."""
    cause: str
    """Why the call is in doubt."""
    upstream: str
    """The upstream that the call went to; empty if that is unknown."""
    request_id: str
    """What the provider calls the request; empty if it did not say."""
    sent_at: float
    """When the step of the call was begun."""
    found_at: float
    resolved_at: float | None
    resolved_by: str
    """Who decided; empty if nobody did."""
    note: str
    input_tokens: int | None
    """The tokens that the call has read, as far as its response said it; null: not known."""
    output_tokens: int | None
    """The tokens that the call has written, as far as its response said it; null: not known."""


class DoubtPage(msgspec.Struct):
    """Doubts, the oldest first."""

    doubts: list[DoubtOut]
    next: int | None
    """The `after` of the next page; null on the last one."""


class ResolveDoubtRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of a call in doubt."""

    decision: Literal["repeat", "accept", "fail"]
    """`repeat`: do the step again. `accept`: `result` is its result. `fail`: never do it again."""
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """With `accept`: the result of the step, any JSON value."""
    note: str = ""
    """Why; kept with the decision."""


class DoubtResolvedOut(msgspec.Struct):
    """A decision, and what became of the task."""

    doubt_id: int
    status: str
    """`done`, also if the same decision was made before."""
    task_id: str
    resumed: bool
    """The task was a dead letter for its doubts, and was redriven."""
    waits_for: int
    """How many other calls of the task wait for a decision."""


def to_step_out(row: StepRow) -> StepOut:
    """Return the response body of a step."""
    return StepOut(
        name=row.name,
        key=row.key,
        state=str(row.state),
        run=row.run,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        size=row.size,
        upstream=row.upstream,
        cached_from=row.cached_from or None,
    )


def to_doubt_out(row: DoubtRow) -> DoubtOut:
    """Return the response body of a doubt."""
    fields = asdict(row)
    fields |= {"doubt_id": fields.pop("id"), "tenant": row.tenant or None}
    return DoubtOut(**fields | {"state": str(row.state), "on_doubt": str(row.on_doubt)})


def to_provider_job_out(row: ProviderJobRow) -> ProviderJobOut:
    """Return a provider job as the API shows it."""
    fields = asdict(row) | {"next_poll_at": row.next_poll_at if row.is_polled else None}
    return ProviderJobOut(submits=fields.pop("generation"), **fields)
