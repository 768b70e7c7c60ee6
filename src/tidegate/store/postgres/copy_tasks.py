"""Store many new tasks without key or unique name by COPY, the fastest way into PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidegate.store.common.new_tasks import due_at, map_task_row, rollup_key, task_row
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import NewTask

_COUNT = load("enqueue")["count"]

_TASK = (
    "id", "function", "queue", "priority", "upstream", "tenant", "idempotency_key", "unique_name",
    "unique_until_final", "timeout_seconds", "total_timeout_seconds", "max_attempts", "deadline_seconds",
    "deadline_at", "labels", "enqueued_at", "on_final",
)  # fmt: skip
_PAYLOAD = ("task_id", "codec_tag", "args")
_READY = ("task_id", "queue", "priority", "upstream", "function", "tenant", "rank", "ready_at", "run")
_WAITING = (
    "task_id", "state", "due_at", "queue", "priority", "upstream", "function", "tenant", "rank", "run"
)  # fmt: skip


async def enqueue_by_copy(db: PostgresSession, tasks: Sequence[NewTask]) -> None:
    """Store tasks without key or unique name.

    Raises:
        asyncpg.UniqueViolationError: One of these tasks is stored already.
    """
    now = await db.now()
    await copy_tasks(db, now, tasks)
    ready, later = [], []
    for task in tasks:
        due = due_at(now, task)
        if due is None:
            ready.append((task.id, *_channel_columns(task), now, now, 0))
        else:
            later.append((task.id, "scheduled", due, *_channel_columns(task), due, 0))
    if ready:
        await db.copy("ready", _READY, ready)
    if later:
        await db.copy("waiting", _WAITING, later)
    for where, number in Counter([rollup_key(task) for task in tasks]).items():
        await db.run(_COUNT, int(now // 60), *where, number)


async def copy_tasks(db: PostgresSession, now: float, tasks: Sequence[NewTask]) -> None:
    """Write the rows in `task` and the payloads."""
    await db.copy("task", _TASK, [task_row(now, task.id, task) for task in tasks])
    await db.copy("payload", _PAYLOAD, [(task.id, task.codec_tag, task.args) for task in tasks])


async def copy_items(
    db: PostgresSession, now: float, tasks: Sequence[NewTask], map_id: str, position: int
) -> None:
    """Write the rows in `task` and the payloads of items of a map, of which the first has this position."""
    rows = [map_task_row(now, task.id, task, map_id, at) for at, task in enumerate(tasks, position)]
    await db.copy("task", (*_TASK, "map_id", "map_position"), rows)
    await db.copy("payload", _PAYLOAD, [(task.id, task.codec_tag, task.args) for task in tasks])


def _channel_columns(task: NewTask) -> tuple[str, int, str, str, str]:
    return (task.queue, int(task.priority), task.upstream, task.function, task.tenant)
