"""The states of a task and every allowed move between them.

Tests check the code and the SQL against this table.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """The state of a task."""

    SCHEDULED = "scheduled"
    """Waits for its start time. A task in this state has not run yet."""
    HELD = "held"
    """A tenant's task that is not admitted yet."""
    SUSPENDED = "suspended"
    """Has started, released its slot, and waits for a time, an event or its children."""
    READY = "ready"
    """In the main queue: it can run now."""
    RUNNING = "running"
    """Claimed by a worker."""
    RETRYING = "retrying"
    """In the retry queue: waits for the time of its next run."""
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    DEAD = "dead"
    """A dead letter, kept for people."""


FINAL = frozenset({State.SUCCEEDED, State.CANCELLED, State.DEAD})
"""No worker moves a task out of these states. Only a person's redrive does."""

WAITING = frozenset({State.SCHEDULED, State.HELD, State.SUSPENDED, State.RETRYING})
"""Tasks in these states are kept in the `waiting` table, which the claim does not read."""

Move = tuple[State | None, State]
"""The state before and after a move. None as the first means that the task did not exist."""


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
        "undo_letters": _moves("ready", "dead"),
    }
)
"""The store operations that move a task, each with its allowed moves. No other operation moves a task."""


def allowed(operation: str, source: State | None, target: State) -> bool:
    """Return whether `operation` may move a task from `source` to `target`."""
    return (source, target) in MOVES[operation]
