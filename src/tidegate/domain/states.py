"""The states of a task and every allowed move between them. Code and SQL are checked against it."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a task is in its life."""

    SCHEDULED = "scheduled"
    """Waits for its time, never run yet."""
    HELD = "held"
    """A tenant's task, not admitted yet."""
    SUSPENDED = "suspended"
    """Started, gave its slot back, waits for a time, an event or its children."""
    READY = "ready"
    """In the main queue: runnable now."""
    RUNNING = "running"
    """Claimed by a worker."""
    RETRYING = "retrying"
    """In the retry queue: waits for the time of its next run."""
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    DEAD = "dead"
    """In the dead letters: kept for people."""


FINAL = frozenset({State.SUCCEEDED, State.CANCELLED, State.DEAD})
"""No worker moves a task out of these; only a person's redrive does."""

WAITING = frozenset({State.SCHEDULED, State.HELD, State.SUSPENDED, State.RETRYING})
"""Kept in the `waiting` table; the claim never looks at them."""

Move = tuple[State | None, State]
"""From and to; `None` stands for "did not exist"."""


def _moves(sources: str, targets: str) -> frozenset[Move]:
    return frozenset(
        (None if source == "new" else State(source), State(target))
        for source in sources.split()
        for target in targets.split()
    )


MOVES = MappingProxyType(
    {
        "enqueue": _moves("new", "ready scheduled held"),
        "promote": _moves("scheduled retrying suspended", "ready"),
        "admit": _moves("held", "ready"),
        "claim": _moves("ready", "running"),
        "finish": _moves("running", "succeeded retrying ready dead cancelled suspended"),
        "cancel": _moves("scheduled held suspended ready retrying", "cancelled"),
        "run_now": _moves("scheduled retrying", "ready"),
        "redrive": _moves("dead", "ready"),
    }
)
"""Every store operation that moves a task, with the moves it may make. No other operation moves one."""


def allowed(operation: str, source: State | None, target: State) -> bool:
    """Return whether `operation` may move a task from `source` to `target`."""
    return (source, target) in MOVES[operation]
