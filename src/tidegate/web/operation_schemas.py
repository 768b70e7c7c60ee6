"""Types of the bodies about operations, and functions that fill them from the store's rows."""

from __future__ import annotations

import msgspec

from tidegate.operations.bulk import describe_filter
from tidegate.operations.dead_letters import DeadLetterFilters
from tidegate.store.operation_rows import LetterRow, OperationRow
from tidegate.web.request_schemas import Duration


class PurgeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters to purge. At least one field must choose: a filter, or `everything`."""

    queue: str | None = None
    function: str | None = None
    """The full name of the task function."""
    tenant: str | None = None
    reason: str | None = None
    error_class: str | None = None
    labels: dict[str, str] | None = None
    fingerprint: str | None = None
    """The fingerprint that the groups of failures show, or its first digits."""
    since: Duration = None
    """Only failures younger than this age: `1h`."""
    before: Duration = None
    """Only failures older than this age: `7d`."""
    everything: bool = False
    """Choose every dead letter, instead of a filter."""
    dry_run: bool = False
    """Only count the letters; start nothing."""
    expect: int | None = None
    """Refuse if more letters match than this."""

    @property
    def filters(self) -> DeadLetterFilters:
        """The filter that its fields make."""
        return DeadLetterFilters(
            queue=self.queue,
            function=self.function,
            tenant=self.tenant,
            reason=self.reason,
            error_class=self.error_class,
            labels=self.labels,
            fingerprint=self.fingerprint,
            since=self.since,
            before=self.before,
        )


class RedriveRequest(PurgeRequest, forbid_unknown_fields=True):
    """Which dead letters to redrive, and how. At least one field must choose: a filter, or `everything`."""

    to_queue: str | None = None
    """Send the letters to this queue instead of their own."""
    keep_attempts: bool = False
    """Keep counting from the attempts charged so far. By default all counters start from zero."""
    repeat_doubts: bool = False
    """Also send letters whose calls may have been processed."""
    stop_above: float = 0.2
    """Stop when a larger share of the first attempts than this (0 to 1) fails."""
    canary_within: Duration = None
    """How long the first attempts of the canary may take; 10 minutes by default."""


class PurgePreviewOut(msgspec.Struct):
    """What a purge would do."""

    letters: int
    """Dead letters that would be deleted."""


class RedrivePreviewOut(msgspec.Struct):
    """What a redrive would do."""

    letters: int
    """How many dead letters would be sent."""
    in_doubt: int
    """How many matching letters would be left out, because their calls may have been processed."""
    canary: int
    """How many letters would be sent first, as a canary."""


class OperationOut(msgspec.Struct):
    """A redrive or a purge of dead letters."""

    operation_id: str
    kind: str
    """`redrive` or `purge`."""
    state: str
    """`choosing`, `canary`, `feeding`, `purging`, `undoing`, `done`, `stopped`, `aborted` or `undone`."""
    note: str
    """What the operation waits for, or why it ended; may be empty."""
    started_by: str
    filter: str
    """Which letters it is for: a filter such as `queue=llm reason=quota`, or `ids`."""
    preview: int
    """How many letters matched when the operation started."""
    chosen: int
    canary: int
    """How many letters are sent first, as a canary."""
    sent: int
    """How many letters were sent to the main queue, or purged."""
    succeeded: int
    died: int
    """How many redriven letters are dead again."""
    cancelled: int
    unfinished: int
    """How many redriven letters have no final outcome yet."""
    skipped: int
    undone: int
    started_at: float
    ended_at: float | None


class OperationPage(msgspec.Struct):
    """Operations, the latest first."""

    operations: list[OperationOut]
    next: str | None
    """The `after` of the next page; null on the last one."""


class RedrivenLetterOut(msgspec.Struct):
    """One letter of a redrive, and its outcome."""

    task_id: str
    state: str
    """`chosen`, `sent`, `succeeded`, `died`, `cancelled`, `skipped` or `undone`."""
    queue: str
    function: str
    tenant: str | None
    in_canary: bool
    redriven_at: float | None
    first_attempt: str | None
    """The first attempt: `succeeded` or `failed`; null if it has not ended."""
    why: str
    """Why the letter was skipped, or what it died of again."""


class RedrivenLetterPage(msgspec.Struct):
    """Letters of a redrive, by task id."""

    letters: list[RedrivenLetterOut]
    next: str | None
    """The `after` of the next page; null on the last one."""


def to_operation_out(row: OperationRow) -> OperationOut:
    """Return the response body of an operation."""
    return OperationOut(
        operation_id=row.id,
        kind=str(row.kind),
        state=str(row.state),
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
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def to_redriven_letter_out(row: LetterRow) -> RedrivenLetterOut:
    """Return the response body of a letter."""
    return RedrivenLetterOut(
        task_id=row.task_id,
        state=str(row.state),
        queue=row.queue,
        function=row.function,
        tenant=row.tenant or None,
        in_canary=row.in_canary,
        redriven_at=row.sent_at,
        first_attempt=row.first_try or None,
        why=row.why,
    )
