"""Build task rows, results and histories from stored columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Charge
from tidegate.domain.redaction import redact
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals
from tidegate.store.common.columns import PRIORITIES, FormatId, counters_of, decode_labels
from tidegate.store.rows import HistoryRow, StoredResult, TaskRow


class StoredOutcome(NamedTuple):
    """How a task ended, as `get_result` reads it."""

    state: str | None
    data: bytes | None
    codec_tag: str | None
    reason: str
    error_class: str
    message: str
    stopped: str | None
    asked: str | None
    fingerprint: str | None


class StoredAttempt(NamedTuple):
    """A run without success, as `get_history` reads it."""

    run: int
    worker_id: str
    started_at: float
    ended_at: float
    outcome: str
    charge: str
    verdict: str
    reason: str
    error_class: str
    message: str
    traceback: str
    status: int | None
    code: str
    request_id: str
    evidence: str
    next_run_at: float | None
    why: str


class StoredOtherRun(NamedTuple):
    """The run that succeeded, or the current run, as `get_history` reads it."""

    run: int
    worker_id: str | None
    started_at: float
    finished_at: float | None


class StoredTask(NamedTuple):
    """A task, as `read_tasks` reads it."""

    id: Any
    function: str
    queue: str
    priority: int
    upstream: str
    tenant: str
    state: str
    run: int
    attempts: int
    parks: int
    crashes: int
    losses: int
    releases: int
    rule_attempts: str | None
    redrives: int
    enqueued_at: float
    due_at: float | None
    held_until_at: float | None
    held_by: str | None
    started_at: float | None
    finished_at: float | None
    worker_id: str | None
    cancel_requested: bool | int
    last_reason: str | None
    last_message: str | None
    why: str | None
    done: float | None
    total: float | None
    note: str | None
    idempotency_key: str | None
    max_attempts: int | None
    deadline_at: float | None
    redriven_at: float | None
    labels: str | None
    calls: int | None
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int


def build_stored_result(row: StoredOutcome) -> StoredResult | None:
    """Return the result of a task; None if it is not final."""
    if row.state is None:
        return None
    if row.state == State.SUCCEEDED:
        data = b"null" if row.data is None else row.data
        return StoredResult(State.SUCCEEDED, data, row.codec_tag or CODEC)
    if row.state == State.CANCELLED:
        message = row.asked or row.stopped or ""
        return StoredResult(State.CANCELLED, b"", "", reason=str(Reason.CANCELLED), message=redact(message))
    return StoredResult(
        State.DEAD,
        b"",
        "",
        reason=row.reason,
        error_class=row.error_class,
        message=redact(row.message),
        fingerprint=row.fingerprint,
    )


def build_history(
    enqueued_at: float,
    *,
    attempts: Iterable[StoredAttempt],
    other_runs: Iterable[StoredOtherRun],
    actions: Iterable[Sequence[Any]],
) -> list[HistoryRow]:
    """Return every run and action of a task, oldest first."""
    runs = [*map(_attempt, attempts), *map(_other_run, other_runs)]
    done = [HistoryRow(kind, at, why=why) for kind, at, why in actions]
    runs_and_actions = sorted([*runs, *done], key=lambda entry: (entry.at, entry.run or 0))
    return [HistoryRow("enqueued", enqueued_at), *runs_and_actions]


def task_row(row: StoredTask, format_id: FormatId) -> TaskRow:
    """Return a task."""
    state = State(row.state)
    reason, message = _current_reason(state, row.last_reason or "", row.last_message or row.why or "")
    if state is State.SUSPENDED:  # it waits as its function asked; an earlier failure is over
        reason, message = "", row.why or ""
    usage = None
    if row.calls is not None:
        usage = UsageTotals(
            row.calls,
            row.input_tokens,
            row.cached_tokens,
            row.cache_write_tokens,
            row.output_tokens,
            row.reasoning_tokens,
        )
    return TaskRow(
        id=format_id(row.id),
        function=row.function,
        queue=row.queue,
        priority=PRIORITIES[row.priority],
        upstream=row.upstream,
        tenant=row.tenant,
        state=state,
        run=row.run,
        counters=counters_of(row),
        redrives=row.redrives,
        enqueued_at=row.enqueued_at,
        due_at=row.due_at,
        held_until_at=row.held_until_at if row.held_by else None,
        held_by=row.held_by or "",
        started_at=row.started_at,
        finished_at=row.finished_at,
        worker_id=row.worker_id,
        cancel_requested=bool(row.cancel_requested),
        reason=reason,
        message=redact(message),
        progress_done=row.done,
        progress_total=row.total,
        progress_note=row.note or "",
        key=row.idempotency_key,
        max_attempts=row.max_attempts,
        deadline_at=row.deadline_at,
        redriven_at=row.redriven_at,
        labels=decode_labels(row.labels),
        usage=usage,
    )


def _current_reason(state: State, reason: str, message: str) -> tuple[str, str]:
    """Return why a task is in its present state. A failure before a success or cancel no longer counts."""
    if state is State.SUCCEEDED:
        return "", ""
    return (str(Reason.CANCELLED), "") if state is State.CANCELLED else (reason, message)


def _attempt(row: StoredAttempt) -> HistoryRow:
    columns = row._asdict()
    at = columns.pop("started_at")
    if columns["charge"] == Charge.SUSPENSION:
        columns |= {"outcome": str(State.SUSPENDED), "charge": ""}
    for text in ("message", "traceback", "evidence", "why"):
        columns[text] = redact(columns[text])
    return HistoryRow("run", at, **columns)


def _other_run(row: StoredOtherRun) -> HistoryRow:
    return HistoryRow(
        "run",
        row.started_at,
        run=row.run,
        ended_at=row.finished_at,
        worker_id=row.worker_id or "",
        outcome="" if row.finished_at is None else str(State.SUCCEEDED),
    )
