"""The state of a group of failures: open, resolved or muted.

The state is computed from a mark and from the last death.

Nothing is written when a task dies: a group that was resolved is open again because its last death came after
that.
"""

from __future__ import annotations

from enum import StrEnum


class FailureState(StrEnum):
    """What people have done about the deaths with one fingerprint."""

    OPEN = "open"
    RESOLVED = "resolved"
    """A person has marked the group as resolved, and no task has died of it since."""
    MUTED = "muted"
    """Deaths of the group are counted, but alerts about surges of deaths leave them out."""


def resolved_state(marked_at: float, last_death_at: float | None) -> FailureState:
    """Return the state of a group that was resolved at a moment."""
    returned = last_death_at is not None and last_death_at > marked_at
    return FailureState.OPEN if returned else FailureState.RESOLVED


def muted_state(until_at: float | None, now: float) -> FailureState:
    """Return the state of a group that was muted until a moment; None: for good."""
    return FailureState.MUTED if until_at is None or now < until_at else FailureState.OPEN
