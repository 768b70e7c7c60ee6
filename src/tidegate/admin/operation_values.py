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
    """A redrive or a purge of dead letters: who started it, how far it is, how it ended."""

    id: str
    kind: OperationKind
    state: OperationState
    note: str
    """What it waits for, or why it ended; may be empty."""
    started_by: str
    filter: str
    """Which letters: `queue=llm reason=quota`, or `ids`."""
    preview: int
    """Letters that matched when it was started."""
    chosen: int
    canary: int
    """How many letters were or will be sent first."""
    sent: int
    """Sent to the main queue, or purged."""
    succeeded: int
    died: int
    """Redriven letters that are dead again."""
    cancelled: int
    """Tasks that were cancelled or deleted."""
    unfinished: int
    """Redriven letters without a final outcome."""
    skipped: int
    undone: int
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RedrivenLetter:
    """One letter of a redrive, and what became of it."""

    task_id: str
    state: LetterState
    queue: str
    """The queue to which it is sent."""
    function: str
    tenant: str | None
    in_canary: bool
    redriven_at: datetime | None
    first_attempt: str | None
    """`succeeded` or `failed`; None: it has not ended."""
    why: str
    """Why it was skipped, or of what it died again."""


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
