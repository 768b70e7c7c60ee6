"""What `app.admin.operations` returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.operations.bulk import describe_filter
from tidegate.store.operation_rows import (
    LetterRow,
    LetterState,
    OperationKind,
    OperationRow,
    OperationState,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """A redrive or a purge of dead letters: who started it, its progress, and how it ended."""

    id: str
    kind: OperationKind
    state: OperationState
    note: str
    """What the operation waits for, or why it ended; may be empty."""
    started_by: str
    filter: str
    """Which letters it is for: a filter such as `queue=llm reason=quota`, or `ids`."""
    preview: int
    """How many letters matched when the operation started."""
    chosen: int
    canary: int
    """How many letters were or will be sent first, as a canary."""
    sent: int
    """How many letters were sent to the main queue, or purged."""
    succeeded: int
    died: int
    """How many redriven letters are dead again."""
    cancelled: int
    """How many redriven tasks were cancelled or deleted."""
    unfinished: int
    """How many redriven letters have no final outcome yet."""
    skipped: int
    undone: int
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RedrivenLetter:
    """One letter of a redrive, and its outcome."""

    task_id: str
    state: LetterState
    queue: str
    """The queue to which the letter is sent."""
    function: str
    tenant: str | None
    in_canary: bool
    redriven_at: datetime | None
    first_attempt: str | None
    """The first attempt: `succeeded` or `failed`; None if it has not ended."""
    why: str
    """Why the letter was skipped, or what it died of again."""


def operation(row: OperationRow) -> Operation:
    """Return the public value of an operation."""
    return Operation(
        id=row.id,
        kind=row.kind,
        state=row.state,
        note=row.note,
        started_by=row.started_by,
        filter=describe_filter(row.filter),
        preview=row.preview,
        chosen=row.chosen,
        canary=row.canary,
        sent=row.sent,
        succeeded=row.succeeded,
        died=row.died,
        cancelled=row.cancelled,
        unfinished=row.unfinished,
        skipped=row.skipped,
        undone=row.undone,
        started_at=to_datetime(row.started_at),
        ended_at=to_datetime_or_none(row.ended_at),
    )


def redriven_letter(row: LetterRow) -> RedrivenLetter:
    """Return the public value of a letter."""
    return RedrivenLetter(
        task_id=row.task_id,
        state=row.state,
        queue=row.queue,
        function=row.function,
        tenant=row.tenant or None,
        in_canary=row.in_canary,
        redriven_at=to_datetime_or_none(row.sent_at),
        first_attempt=row.first_try or None,
        why=row.why,
    )
