"""Check new tasks before a store compares them with its stored tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tidegate.domain.readers import require_before_deadline
from tidegate.errors import OptionError
from tidegate.store.common.final_hooks import encode_hook
from tidegate.store.common.refusals import unstorable
from tidegate.store.common.rollup_totals import RollupKey
from tidegate.store.common.text import to_json
from tidegate.store.rows import NewTask

MAX_TASKS_PER_CALL = 5_000
"""The most tasks in one transaction: more would make other writers wait too long."""


def require_few(tasks: Sequence[NewTask]) -> None:
    """Raise `OptionError` if there are too many tasks for one call.

    Raises:
        OptionError: There are more than `MAX_TASKS_PER_CALL`.
    """
    if len(tasks) > MAX_TASKS_PER_CALL:
        raise OptionError(
            f"{len(tasks):,} tasks in one call",
            fix=f"split it into parts of at most {MAX_TASKS_PER_CALL:,}",
            option="tasks",
            value=len(tasks),
        )


def require_no_parents(tasks: Sequence[NewTask]) -> None:
    """Raise unless none of these tasks waits for others.

    Raises:
        OptionError: One does.
    """
    if any(task.after for task in tasks):
        raise OptionError(
            "after= in an enqueue of more than 5,000 tasks, of a map, or with conn=",
            fix="enqueue tasks with after= in lists of at most 5,000, without conn=",
            option="after",
            value=None,
        )


def due_at(now: float, task: NewTask) -> float | None:
    """Return when a task becomes ready; None if it is ready now.

    Raises:
        OptionError: The moment or delay is not a number, or the deadline is before the task is due.
    """
    due = now + task.delay_seconds if task.run_at is None else task.run_at
    if not math.isfinite(due):
        raise OptionError(
            f"{task.id} is due at {due}",
            fix="give a moment or delay that is a number",
            option="delay" if task.run_at is None else "run_at",
            value=due,
        )
    deadline = deadline_at(now, task)
    require_before_deadline(due - now, None if deadline is None else deadline - now)
    return due if due > now else None


def deadline_at(now: float, task: NewTask) -> float | None:
    """Return the moment of a task's deadline; None if it has none."""
    if task.deadline_at is not None:
        return task.deadline_at
    return None if task.deadline_seconds is None else now + task.deadline_seconds


def rollup_key(task: NewTask) -> RollupKey:
    """Return the key under which the roll-up counts a task."""
    return (task.queue, task.function, task.upstream, task.tenant)


def task_row(now: float, task_id: Any, task: NewTask) -> tuple[Any, ...]:
    """Return the columns of a new task's row in `task`, in the order that both back ends use.

    Args:
        now: The current time.
        task_id: The id in the back end's stored form.
        task: The task.
    """
    return (
        task_id,
        task.function,
        task.queue,
        int(task.priority),
        task.upstream,
        task.tenant,
        task.key,
        task.unique,
        task.unique is not None and task.unique_seconds is None,
        task.timeout_seconds,
        task.total_timeout_seconds,
        task.max_attempts,
        task.deadline_seconds,
        deadline_at(now, task),
        to_json(task.labels),
        now,
        encode_hook(task.on_final),
    )


def map_task_row(now: float, task_id: Any, task: NewTask, map_id: Any, map_position: int) -> tuple[Any, ...]:
    """Return the columns of the row in `task` of a map's item: those of `task_row`, the map and position."""
    return (*task_row(now, task_id, task), map_id, map_position)


def require_storable_texts(task: NewTask) -> None:
    """Raise `ArgumentsError` if a text of a task cannot be stored: it has a NUL or a lone surrogate.

    Raises:
        ArgumentsError: A text cannot be stored.
    """
    texts = (task.function, task.queue, task.upstream, task.tenant, task.codec_tag, task.key, task.unique)
    for text in (*texts, *task.labels, *task.labels.values()):
        if text and not _is_text(text):
            raise unstorable(text)


def _is_text(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
