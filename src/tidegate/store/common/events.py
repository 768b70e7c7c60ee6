"""Events, and the waits of tasks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.event_rows import EventWait, NewEvent, WaitAnswer, WaitStatus


async def send_event(db: Session, event: NewEvent) -> int:
    """Store an event and give it to the tasks that wait for it; return how many."""
    sql, now = db.sql("events"), await db.now()
    tenant, name, event_id = storable(event.tenant), storable(event.name), db.id(event.id)
    content = (storable(event.codec_tag), event.data)
    await db.rows(sql["lock"], tenant, name)
    if not await db.run(sql["add"], event_id, tenant, name, *content, now, now + event.kept_seconds):
        return 0
    tasks = await db.column(sql["deliver"], event_id, tenant, name, *content)
    if tasks:
        await db.run(sql["wake"], db.array(tasks), now)
    return len(tasks)


async def wait_for_event(db: Session, wait: EventWait) -> WaitAnswer:
    """Begin a wait, or return what became of it."""
    sql, now, task = db.sql("events"), await db.now(), db.id(wait.fence.task_id)
    tenant, name, key = storable(wait.tenant), storable(wait.name), storable(wait.key)
    await db.rows(sql["lock"], tenant, name)
    if task is None or await db.value(sql["is_current"], task, wait.fence.run) is None:
        return WaitAnswer(WaitStatus.FENCED)
    times_out_at = None if wait.timeout_seconds is None else now + wait.timeout_seconds
    await db.run(sql["begin_wait"], task, key, tenant, name, now, times_out_at)
    found = await db.row(sql["wait"], task, key)
    assert found is not None
    state, deadline_at, codec_tag, data = found
    if state == WaitStatus.OPEN:
        event = await db.row(sql["event"], tenant, name, task, now)
        if event is not None:
            event_id, codec_tag, data = event
            await db.run(sql["end_wait"], task, key, "received", event_id, codec_tag, data)
            return WaitAnswer(WaitStatus.RECEIVED, data, codec_tag)
        if deadline_at is None or deadline_at > now:
            return WaitAnswer(
                WaitStatus.OPEN, left_seconds=None if deadline_at is None else deadline_at - now
            )
        await db.run(sql["end_wait"], task, key, "timed_out", None, "", None)
        return WaitAnswer(WaitStatus.TIMED_OUT)
    return WaitAnswer(WaitStatus(state), data or b"", codec_tag)


async def has_ended_wait(db: Session, task: Any, keys: Sequence[str]) -> bool:
    """Return whether any of these waits of a task is over. A send that comes now waits for this transaction.

    Args:
        db: A session in the transaction that suspends the task.
        task: The task's id in its stored form.
        keys: The waits.
    """
    ended: int = await db.value(db.sql("events")["ended_waits"], task, json.dumps(list(keys)))
    return ended > 0
