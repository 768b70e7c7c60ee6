"""Groups of failures: what tasks died of, with the state of each group. Failures that no rule classifies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.deadletter.group_states import OPEN, GroupState, read_states
from tidegate.domain.readers import Seconds, positive_option, require_names
from tidegate.domain.text import storable
from tidegate.errors import OptionError
from tidegate.operations.fingerprints import known_fingerprint, optional_fingerprint
from tidegate.operations.history import GroupFilters, HistoryFilters, history_range, range_of
from tidegate.policy.failure_state import FailureState
from tidegate.policy.suggest_rule import suggest_rule
from tidegate.store.failure_rows import FailureMark, MarkKind, UnknownFailureRow
from tidegate.store.history_rows import FailureGroupRow
from tidegate.store.protocol import Store

_NOTE_LIMIT = 500
_FETCHED = 1_000
"""How many groups are read to find the groups of one state."""


@dataclass(frozen=True, slots=True)
class GroupWithState:
    """A group of deaths with one fingerprint, and its state."""

    group: FailureGroupRow
    state: GroupState


@dataclass(frozen=True, slots=True)
class UnknownFailure:
    """The attempts with one fingerprint that failed and that no rule classifies."""

    row: UnknownFailureRow
    reviewed: FailureMark | None
    rule: str
    """The line of code that adds a rule for this failure."""


async def list_groups(
    store: Store, filters: GroupFilters, *, limit: int, state: FailureState | None = None
) -> list[GroupWithState]:
    """Return the deaths by fingerprint with the state of each group, the most deaths first.

    Raises:
        OptionError: A value is invalid.
    """
    which = await history_range(store, filters)
    groups = await store.list_failure_groups(
        which,
        limit=limit if state is None else _FETCHED,
        error_class=filters.get("error_class"),
        fingerprint=await optional_fingerprint(store, filters.get("fingerprint")),
        tenant=filters.get("tenant"),
    )
    states = await read_states(store)
    found = [GroupWithState(group, states.get(group.fingerprint, OPEN)) for group in groups]
    return [each for each in found if state is None or each.state.state is state][:limit]


async def resolve(store: Store, fingerprint: str, *, by: str, note: str = "") -> str:
    """Mark a group as resolved, and return its fingerprint.

    The group opens again when another task dies of it.

    Raises:
        OptionError: There is no such group.
    """
    found = await known_fingerprint(store, fingerprint)
    await store.mark_failure(found, MarkKind.RESOLVED, by=by, note=storable(note, _NOTE_LIMIT))
    return found


async def mute(
    store: Store, fingerprint: str, *, by: str, note: str = "", duration: Seconds | None = None
) -> str:
    """Mute a group for a time or for ever, and return its fingerprint.

    Deaths of a muted group are still counted.

    Raises:
        OptionError: There is no such group, or the duration is invalid.
    """
    seconds = None if duration is None else positive_option("duration", duration)
    found = await known_fingerprint(store, fingerprint)
    await store.mark_failure(found, MarkKind.MUTED, by=by, note=storable(note, _NOTE_LIMIT), seconds=seconds)
    return found


async def reopen(store: Store, fingerprint: str) -> bool:
    """Remove the mark of a resolved or muted group; return whether it had a mark.

    Raises:
        OptionError: There is no such group.
    """
    found = await known_fingerprint(store, fingerprint)
    return await store.unmark_failure(found, (MarkKind.RESOLVED, MarkKind.MUTED))


async def list_unknown(
    store: Store, filters: HistoryFilters, *, limit: int, with_reviewed: bool = False
) -> list[UnknownFailure]:
    """Return failed attempts without a rule by fingerprint, the most first; reviewed groups only on demand.

    Raises:
        OptionError: A value is invalid.
    """
    require_names(filters, HistoryFilters.__annotations__)
    if filters.get("queue") is not None:
        raise OptionError(
            "unknown failures have no filter by queue", fix="filter by function", option="queue"
        )
    which = await range_of(store, filters)
    rows = await store.list_unknown_failures(which.since, which.until, function=which.function)
    reviewed = {
        mark.fingerprint: mark for mark in await store.list_failure_marks() if mark.kind is MarkKind.REVIEWED
    }
    found = [
        UnknownFailure(
            row,
            reviewed.get(row.fingerprint),
            suggest_rule(row.error_class, tasks=row.tasks, succeeded=row.succeeded),
        )
        for row in rows
        if with_reviewed or row.fingerprint not in reviewed
    ]
    return found[:limit]


async def mark_reviewed(store: Store, fingerprints: Sequence[str], *, by: str, note: str = "") -> list[str]:
    """Mark groups of unknown failures as reviewed; return their fingerprints.

    Raises:
        OptionError: There is no such group. No group was marked.
    """
    found = [await known_fingerprint(store, each) for each in fingerprints]
    for fingerprint in found:
        await store.mark_failure(fingerprint, MarkKind.REVIEWED, by=by, note=storable(note, _NOTE_LIMIT))
    return found


def group_fields(found: GroupWithState) -> dict[str, Any]:
    """Return what the command line and the HTTP API show of a group of deaths."""
    state = asdict(found.state)
    return {**asdict(found.group), "state": state.pop("state").value, **state}


def unknown_fields(found: UnknownFailure) -> dict[str, Any]:
    """Return what the command line and the HTTP API show of an unknown failure."""
    mark = found.reviewed
    return {
        **asdict(found.row),
        "rule": found.rule,
        "reviewed_at": None if mark is None else mark.marked_at,
        "reviewed_by": "" if mark is None else mark.marked_by,
        "note": "" if mark is None else mark.note,
    }
