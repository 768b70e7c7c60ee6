"""What `app.admin` returns about steps and doubts. Moments are datetimes in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.step import DoubtState, OnDoubt, StepState
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
    """The task whose cached result it got, or `another tenant`; None if the work was done."""


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
