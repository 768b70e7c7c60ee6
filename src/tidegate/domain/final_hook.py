"""Final hooks: which task is enqueued when a task reaches a final state, and what it receives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidegate.domain.states import State

MESSAGE_LIMIT = 1_000
"""The message of a final state is cut to this many characters."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """How a task ended: the argument of an `on_final` task function.

    The value contains no result and no arguments.
    """

    task_id: str
    function: str
    """The full name of the task function that ended."""
    queue: str
    tenant: str | None
    state: State
    """`succeeded`, `dead` or `cancelled`."""
    run: int
    """The last run; 0 if there was none."""
    reason: str
    """The reason of a dead task, a value of `Reason`; empty after a success."""
    error_class: str
    """The dotted name of the exception class; empty if there was no exception."""
    message: str
    """The error's own text, with secrets masked, or why it was cancelled; at most 1,000 characters."""


@dataclass(frozen=True, slots=True)
class FinalHook:
    """The task to enqueue. The hook is stored with its task, so any process can enqueue the hook's task."""

    function: str
    queue: str
    priority: int
    upstream: str = ""
    then: FinalHook | None = None
    """The final hook of the hook's own task."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions of the whole chain."""
        return (self.function, *(() if self.then is None else self.then.functions))


def hook_task_id(task_id: str, run: int, state: str, now: float) -> str:
    """Return the id of the task that a final state enqueues: a UUIDv7, the same for the same final state."""
    digest = hashlib.sha256(f"{task_id} {run} {state} {now!r}".encode()).digest()
    number = (
        (int(now * 1000) & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (int.from_bytes(digest[:2]) & 0xFFF) << 64
        | 0b10 << 62
        | int.from_bytes(digest[2:10]) & (1 << 62) - 1
    )
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
