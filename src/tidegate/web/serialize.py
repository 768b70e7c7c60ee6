"""Converts rows of the store to the types of the API."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from tidegate.codec.plain import unstorable
from tidegate.domain.trace import trace_id_of
from tidegate.limits.pauses import Pause
from tidegate.store.access import AuditEntry
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow
from tidegate.store.live_workers import is_live, late_seconds
from tidegate.store.rows import DeadLetterRow, HistoryRow, QueueStats, StoredResult, TaskRow
from tidegate.store.worker_rows import WorkerRow
from tidegate.web.control_schemas import PauseOut
from tidegate.web.schemas import (
    AuditOut,
    DeadLetterOut,
    DrainOut,
    ErrorOut,
    ProgressOut,
    QueueOut,
    RunOut,
    TaskOut,
    TaskResult,
    UnstorableOut,
    UsageOut,
    WaitOut,
    WorkerOut,
)


def to_task_status(row: TaskRow) -> TaskOut:
    """Return a task as the API shows it."""
    progress = None
    if row.progress_done is not None:
        progress = ProgressOut(row.progress_done, row.progress_total, row.progress_note)
    return TaskOut(
        task_id=row.id,
        function=row.function,
        queue=row.queue,
        priority=row.priority.word,
        tenant=row.tenant or None,
        state=row.state.value,
        run=row.run,
        attempts=row.counters.attempts,
        redrives=row.redrives,
        enqueued_at=row.enqueued_at,
        due_at=row.due_at,
        held_until_at=row.held_until_at,
        held_by=row.held_by or None,
        started_at=row.started_at,
        finished_at=row.finished_at,
        deadline_at=row.deadline_at,
        cancel_requested=row.cancel_requested,
        reason=row.reason,
        message=row.message,
        progress=progress,
        usage=None if row.usage is None else UsageOut(*row.usage.columns()),
        key=row.key,
        labels=dict(row.labels),
        trace_id=trace_id_of(row.labels) or None,
    )


def to_task_result(task_id: str, stored: StoredResult, plain: msgspec.Raw) -> TaskResult:
    """Return the result of a task as the API shows it.

    Args:
        task_id: The task's id.
        stored: Its stored result.
        plain: The same result as plain JSON.
    """
    missing = unstorable(stored.data)
    if missing is not None:
        shown = UnstorableOut(missing.type_name, missing.reason)
        return TaskResult(task_id, stored.state.value, unstorable=shown)
    if stored.data:
        return TaskResult(task_id, stored.state.value, plain)
    error = ErrorOut(stored.reason, stored.error_class, stored.message)
    return TaskResult(task_id, stored.state.value, error=error)


def to_run_out(entry: HistoryRow, *, with_traceback: bool) -> RunOut:
    """Return a history entry as the API shows it."""
    fields = {name: getattr(entry, name) for name in RunOut.__struct_fields__}
    return RunOut(**fields | {"traceback": entry.traceback if with_traceback else ""})


def fields_of(row: DeathCountRow | FailureGroupRow) -> dict[str, Any]:
    """Return the fields of a row of the history by name, with lists for tuples."""
    fields = {name: getattr(row, name) for name in row.__slots__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def to_dead_letter_out(dead_letter: DeadLetterRow) -> DeadLetterOut:
    """Return a dead letter as the API shows it."""
    fields = {name: getattr(dead_letter, name) for name in DeadLetterOut.__struct_fields__}
    shown = {
        "tenant": dead_letter.tenant or None,
        "labels": dict(dead_letter.labels),
    }
    return DeadLetterOut(**fields | shown)


def to_queue_out(stats: QueueStats) -> QueueOut:
    """Return the statistics of a queue as the API shows them."""
    drain = {name: getattr(stats.drain, name) for name in DrainOut.__struct_fields__}
    shown: dict[str, Any] = {
        "waits": [WaitOut(wait.kind.value, wait.by, wait.reason, wait.tasks) for wait in stats.waits],
        "drain": DrainOut(**drain | {"kind": stats.drain.kind.value, "left_out": list(stats.drain.left_out)}),
        "pause": None if stats.pause is None else to_pause_out(stats.pause),
    }
    plain = {name: getattr(stats, name) for name in QueueOut.__struct_fields__ if name not in shown}
    return QueueOut(**plain | shown)


def to_pause_out(pause: Pause) -> PauseOut:
    """Return a pause as the API shows it."""
    return PauseOut(pause.kind.value, pause.name, pause.paused_at, pause.paused_by, pause.why)


def to_worker_out(row: WorkerRow, now: float) -> WorkerOut:
    """Return a worker as the API shows it."""
    fields: dict[str, Any] = {name: getattr(row, name, None) for name in WorkerOut.__struct_fields__}
    shown = {
        "worker_id": row.id,
        "queues": list(row.queues),
        "live": is_live(row, now),
        "late_seconds": late_seconds(row, now),
    }
    return WorkerOut(**fields | shown)


def to_audit_out(entry: AuditEntry) -> AuditOut:
    """Return an entry of the audit log as the API shows it."""
    return AuditOut(**dataclasses.asdict(entry))
