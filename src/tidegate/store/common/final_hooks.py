"""Final hooks: the tasks that are enqueued in the transaction in which other tasks reach a final state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec

from tidegate.codec.tags import CODEC
from tidegate.domain.final_hook import MESSAGE_LIMIT, FinalHook, FinalState, hook_task_id
from tidegate.domain.redaction import redact
from tidegate.domain.spec import Priority
from tidegate.domain.states import FINAL, State
from tidegate.domain.trace import TraceContext
from tidegate.store.common.columns import decode_labels
from tidegate.store.common.outcomes import EndedRunRow, TaskTransition
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.rows import NewTask


class EndedTask(NamedTuple):
    """A task that has just reached a final state."""

    id: Any
    """In stored form."""
    state: State
    run: int
    reason: str = ""
    error_class: str = ""
    message: str = ""


def ended_task(task_id: Any, run: EndedRunRow, number: int, transition: TaskTransition) -> EndedTask | None:
    """Return the task of a run that ended without success, if it has a hook and is final now; else None."""
    if not run.has_on_final or transition.state not in FINAL:
        return None
    record = transition.attempt_record
    if transition.state is State.CANCELLED:
        return EndedTask(task_id, State.CANCELLED, number, "cancelled", "", record.why)
    return EndedTask(task_id, transition.state, number, record.reason, record.error_class, record.message)


async def hook_tasks(db: Session, now: float, ended: Iterable[EndedTask]) -> list[NewTask]:
    """Return the hook tasks to store: one for each of the given tasks that has a hook."""
    by_id = {task.id: task for task in ended}
    if not by_id:
        return []
    rows = await db.rows(db.sql("final_hooks")["hooks"], db.array(by_id))
    return [
        _hook_task(db, now, by_id[_key(by_id, task_id)], function, queue, tenant, hook, decode_labels(labels))
        for task_id, function, queue, tenant, hook, labels in rows
    ]


def encode_hook(hook: FinalHook | None) -> str | None:
    """Return the stored form of a hook; None if there is no hook."""
    return None if hook is None else msgspec.json.encode(hook).decode()


def _key(by_id: dict[Any, EndedTask], stored_id: Any) -> Any:
    return stored_id if stored_id in by_id else str(stored_id)  # asyncpg returns UUID objects for texts


def _hook_task(
    db: Session,
    now: float,
    ended: EndedTask,
    function: str,
    queue: str,
    tenant: str,
    stored_hook: str,
    labels: Mapping[str, str],
) -> NewTask:
    trace = TraceContext.of_labels(labels)
    hook = msgspec.json.decode(stored_hook, type=FinalHook)
    task_id = db.text(ended.id)
    final = FinalState(
        task_id,
        function,
        queue,
        tenant or None,
        ended.state,
        ended.run,
        ended.reason,
        ended.error_class,
        storable(redact(ended.message))[:MESSAGE_LIMIT],
    )
    return NewTask(
        id=hook_task_id(task_id, ended.run, ended.state, now),
        function=hook.function,
        queue=hook.queue,
        priority=Priority(hook.priority),
        args=msgspec.json.encode({"a": [asdict(final)], "k": {}}),
        codec_tag=CODEC,
        upstream=hook.upstream,
        tenant=tenant,
        labels={} if trace is None else trace.labels(),
        on_final=hook.then,
    )
