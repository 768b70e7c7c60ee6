"""Rows of many new tasks by COPY: the fastest way into PostgreSQL, where there is nothing to settle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidegate.store.incoming import due_at
from tidegate.store.postgres.clock import moment
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.rows import NewTask
from tidegate.store.text import to_json

_COUNT = load("enqueue")["count"]

_TASK = (
    "id", "function", "queue", "priority", "upstream", "tenant", "idempotency_key", "unique_name",
    "unique_until_final", "timeout_seconds", "max_attempts", "deadline_seconds", "deadline_at", "labels",
    "enqueued_at",
)  # fmt: skip
_PAYLOAD = ("task_id", "codec_tag", "args")
_READY = ("task_id", "queue", "priority", "upstream", "function", "tenant", "rank", "ready_at", "run")
_WAITING = (
    "task_id", "state", "due_at", "queue", "priority", "upstream", "function", "tenant", "rank", "run"
)  # fmt: skip


async def enqueue_by_copy(db: Session, tasks: Sequence[NewTask]) -> None:
    """Store tasks that want no names.

    Raises:
        asyncpg.UniqueViolationError: One of them is there already.
    """
    now = await moment(db)
    await copy_tasks(db, now, tasks)
    ready, later = [], []
    for task in tasks:
        due = due_at(now, task)
        if due is None:
            ready.append((task.id, *_lane(task), now, now, 0))
        else:
            later.append((task.id, "scheduled", due, *_lane(task), due, 0))
    if ready:
        await db.copy("ready", _READY, ready)
    if later:
        await db.copy("waiting", _WAITING, later)
    for where, number in Counter([_channel(task) for task in tasks]).items():
        await db.run(_COUNT, int(now // 60), *where, number)


async def copy_tasks(db: Session, now: float, tasks: Sequence[NewTask]) -> None:
    """Write the lifelong rows and the payloads."""
    await db.copy("task", _TASK, [_task_row(now, task) for task in tasks])
    await db.copy("payload", _PAYLOAD, [(task.id, task.codec_tag, task.args) for task in tasks])


def _lane(task: NewTask) -> tuple[str, int, str, str, str]:
    return (task.queue, int(task.priority), task.upstream, task.function, task.tenant)


def _channel(task: NewTask) -> tuple[str, str, str, str]:
    return (task.queue, task.function, task.upstream, task.tenant)


def _task_row(now: float, task: NewTask) -> tuple[object, ...]:
    return (
        task.id,
        task.function,
        task.queue,
        int(task.priority),
        task.upstream,
        task.tenant,
        task.key,
        task.unique,
        task.unique is not None and task.unique_seconds is None,
        task.timeout_seconds,
        task.max_attempts,
        task.deadline_seconds,
        None if task.deadline_seconds is None else now + task.deadline_seconds,
        to_json(task.labels),
        now,
    )
