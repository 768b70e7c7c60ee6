"""What every store asks of new tasks before it looks at what it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidegate.errors import OptionError
from tidegate.store.refusals import unstorable
from tidegate.store.rows import NewTask

MOST_TASKS = 5_000
"""In one call: what one transaction may hold up others for."""


def demand_few(tasks: Sequence[NewTask]) -> None:
    """Return if these tasks are few enough for one call.

    Raises:
        OptionError: They are not.
    """
    if len(tasks) > MOST_TASKS:
        raise OptionError(
            f"{len(tasks):,} tasks in one call", fix=f"stage more than {MOST_TASKS:,}", tasks=len(tasks)
        )


def due_at(now: float, task: NewTask) -> float | None:
    """Return when a task becomes ready; None for at once.

    Raises:
        OptionError: The moment or delay is not a number.
    """
    due = now + task.delay_seconds if task.run_at is None else task.run_at
    if not math.isfinite(due):
        raise OptionError(f"{task.id} is due at {due}", fix="give a moment or delay that is a number")
    return due if due > now else None


def demand_text(task: NewTask) -> None:
    """Return if the texts that come with a task can be stored: no NUL, no lone surrogate.

    Raises:
        ArgumentsError: One cannot.
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
