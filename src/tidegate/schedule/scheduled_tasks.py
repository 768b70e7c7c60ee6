"""Converts the task of a schedule: from a prepared task, and into the task of one tick."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegate.domain.schedule import SCHEDULE_LABEL, SCHEDULED_FOR_LABEL, ScheduledTask
from tidegate.domain.spec import NO_LIMIT
from tidegate.store.rows import NewTask

_NO_LIMIT = -1.0


def scheduled_task(prepared: NewTask) -> ScheduledTask:
    """Return the task of a schedule from a task that was prepared for an enqueue."""
    return ScheduledTask(
        function=prepared.function,
        queue=prepared.queue,
        args=prepared.args.decode(),
        codec_tag=prepared.codec_tag,
        fingerprint=prepared.fingerprint.hex(),
        priority=prepared.priority,
        upstream=prepared.upstream,
        tenant=prepared.tenant,
        deadline_seconds=prepared.deadline_seconds,
        timeout_seconds=prepared.timeout_seconds,
        total_timeout_seconds=stored_limit(prepared.total_timeout_seconds),
        max_attempts=prepared.max_attempts,
        labels=dict(prepared.labels),
        on_final=prepared.on_final,
    )


def stored_limit(seconds: float | None) -> float | None:
    """Return a time limit in the form that a schedule stores: -1 for no limit."""
    return _NO_LIMIT if seconds == NO_LIMIT else seconds


def new_task(schedule: str, task: ScheduledTask, *, task_id: str, scheduled_for: float) -> NewTask:
    """Return the task of one tick.

    Args:
        schedule: The name of the schedule.
        task: The task of the schedule.
        task_id: A fresh id.
        scheduled_for: The planned moment of the tick.
    """
    total = task.total_timeout_seconds
    return NewTask(
        id=task_id,
        function=task.function,
        queue=task.queue,
        priority=task.priority,
        args=task.args.encode(),
        codec_tag=task.codec_tag,
        fingerprint=bytes.fromhex(task.fingerprint),
        upstream=task.upstream,
        tenant=task.tenant,
        deadline_seconds=task.deadline_seconds,
        timeout_seconds=task.timeout_seconds,
        total_timeout_seconds=NO_LIMIT if total == _NO_LIMIT else total,
        max_attempts=task.max_attempts,
        labels={**task.labels, SCHEDULE_LABEL: schedule, SCHEDULED_FOR_LABEL: _iso(scheduled_for)},
        on_final=task.on_final,
    )


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
