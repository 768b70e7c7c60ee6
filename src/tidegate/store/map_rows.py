"""The values of the store contract for maps: many tasks that were enqueued as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.final_hook import FinalHook
from tidegate.domain.states import State


@dataclass(frozen=True, slots=True)
class NewMap:
    """One map to be stored, whose items are the tasks of a batch."""

    id: str
    """UUIDv7 as text, made by the client, so that the store recognises a resend."""
    name: str
    function: str
    items: int
    """How many tasks the map has."""
    tenant: str = ""
    key: str | None = None
    """Idempotency key of the map. As long as the map is stored, its tenant has no second map of this key."""
    fingerprint: bytes = b""
    """A hash of the function and the items; empty without a key."""
    max_failures: int | None = None
    """If more items than this are dead, the rest is cancelled. None: no limit."""
    on_complete: FinalHook | None = None
    """The task to enqueue when all items are final."""


@dataclass(frozen=True, slots=True)
class MapRow:
    """One map, without the counts of its items."""

    id: str
    name: str
    function: str
    tenant: str
    key: str | None
    fingerprint: bytes
    items: int
    max_failures: int | None
    on_complete: FinalHook | None
    created_at: float
    cursor: int
    """All items before this position were final when maintenance last looked."""
    cancelled_at: float | None
    """When the cancel of the map's items began."""
    cancel_why: str
    ended_at: float | None
    """When all items were first found final."""
    succeeded: int
    """How many items had succeeded at that moment; the next two count the others."""
    dead: int
    cancelled: int
    callback_id: str | None
    """The task of `on_complete`; None before the map has ended, and without a callback."""


class MapCounts(NamedTuple):
    """How many items of a map are in each kind of state now."""

    succeeded: int
    dead: int
    cancelled: int
    running: int
    unfinished: int
    """Items that are not final, the running ones included."""
    recent: int
    """Items that became final since the moment that was asked for."""


class MapItemRow(NamedTuple):
    """One item of a map and its state."""

    position: int
    """The index of the item, from 0."""
    task_id: str
    state: State
    reason: str
    """Of the failure, if the item is dead."""


class MapResultRow(NamedTuple):
    """One final item of a map with its result."""

    task_id: str
    state: State
    data: bytes
    """The encoded result; empty unless the item succeeded."""
    is_removed: bool
    """Whether retention removed the result before the task."""
    reason: str
    error_class: str
    message: str
