"""The states of groups of failures, computed from what people marked and from the last deaths."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.policy.failure_state import FailureState, muted_state, resolved_state
from tidegate.store.failure_rows import FailureMark, MarkKind
from tidegate.store.protocol import Store


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of a group of failures, and who set it."""

    state: FailureState
    is_reopened: bool = False
    """A task died of the group's failure after the group was resolved."""
    marked_at: float | None = None
    """When a person last resolved or muted the group."""
    marked_by: str = ""
    note: str = ""
    until_at: float | None = None
    """When the mute ends; None for never."""


OPEN = GroupState(FailureState.OPEN)


async def read_states(store: Store) -> dict[str, GroupState]:
    """Return the state of each group that was ever resolved or muted, by fingerprint."""
    now = await store.now()
    return {
        mark.fingerprint: state_of(mark, now)
        for mark in await store.list_failure_marks()
        if mark.kind is not MarkKind.REVIEWED
    }


def state_of(mark: FailureMark, now: float) -> GroupState:
    """Return the state of a group that was resolved or muted."""
    if mark.kind is MarkKind.MUTED:
        state = muted_state(mark.until_at, now)
    else:
        state = resolved_state(mark.marked_at, mark.last_death_at)
    is_reopened = mark.kind is MarkKind.RESOLVED and state is FailureState.OPEN
    return GroupState(state, is_reopened, mark.marked_at, mark.marked_by, mark.note, mark.until_at)
