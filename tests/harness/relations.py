"""Tasks that belong together: the items of maps, tasks after others, children, and tasks that wait for events.

What clients asked for and what waits returned is recorded while a run goes on; the rest is read at its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from checker import StoreSnapshot, SubmittedTask, Violation
from tidegate.domain.states import FINAL, State
from tidegate.store.map_rows import MapCounts, MapItemRow, MapRow
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskRow

RECEIVED = "received.ndjson"
"""Name of the file of notes on waits in the directory of a run."""
MAP, AFTER, WAIT = "I18", "after", "wait"
"""Names of the violations: of maps, of tasks after others, and of waits for events and children."""
FAILED = "failed"
"""What a note says of a child that is dead or cancelled."""
_PAGE = 500
_LATE_SECONDS = 0.25
"""Most by which the times of two transactions of different processes may be in the wrong order."""


class WaitNote(msgspec.Struct, frozen=True):
    """A wait of a task function returned: for an event, or for one child."""

    task_id: str
    run: int
    wait: str
    """`event`, or the number of the child."""
    value: str
    """What came with the event; the run of the child that succeeded, or `failed`."""


@dataclass(frozen=True, slots=True)
class SentMap:
    """A map that a client enqueued, under a key of its own."""

    digests: tuple[str, ...]
    """`digest_of` the arguments of its items, in order."""
    is_answered: bool


class ParentEdges(NamedTuple):
    """The tasks that a task was to wait for."""

    parents: tuple[str, ...]
    on_failure: str


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A map at the end of a run."""

    row: MapRow
    items: tuple[MapItemRow, ...]
    counts: MapCounts
    callbacks: Mapping[str, tuple[int, int, int, int]]
    """The tasks that were enqueued at its end: the items, successes, dead and cancelled that each was given."""


@dataclass(frozen=True, slots=True)
class Relations:
    """What is recorded of tasks that belong together."""

    sent_maps: Mapping[str, SentMap] = field(default_factory=dict)
    """By key."""
    maps: Sequence[StoredMap] = ()
    edges: Mapping[str, ParentEdges] = field(default_factory=dict)
    """By the task that waits."""
    events: Mapping[str, str] = field(default_factory=dict)
    """What each waiting task was sent."""
    notes: Sequence[WaitNote] = ()
    purged: frozenset[str] = frozenset()
    """Tasks that may have been deleted."""


def child_key(task_id: str, number: int) -> str:
    """Return the idempotency key under which a task enqueues its child of this number."""
    return f"child {number} of {task_id}"


def event_name(task_id: str) -> str:
    """Return the name of the event that a task waits for."""
    return f"for {task_id}"


def event_value(task_id: str) -> str:
    """Return what is sent with that event."""
    return f"sent to {task_id}"


async def read_maps(store: Store, rows: Iterable[TaskRow]) -> list[StoredMap]:
    """Return all maps of the store, when nothing runs any more."""
    callbacks = await _callbacks(store, rows)
    found: list[StoredMap] = []
    after: str | None = None
    while page := await store.list_maps(after=after, limit=_PAGE):
        after = page[-1].id
        for row in page:
            items: list[MapItemRow] = []
            while some := await store.list_map_items(
                row.id, after=items[-1].position if items else -1, limit=_PAGE
            ):
                items += some
            counts = await store.count_map_items(row.id)
            found.append(StoredMap(row, tuple(items), counts, callbacks[row.id]))
    return found


async def _callbacks(
    store: Store, rows: Iterable[TaskRow]
) -> Mapping[str, dict[str, tuple[int, int, int, int]]]:
    found: defaultdict[str, dict[str, tuple[int, int, int, int]]] = defaultdict(dict)
    for row in rows:
        if row.function.endswith(":mapped"):
            args, _ = await store.get_payload(row.id)
            (end,) = msgspec.json.decode(args)["a"]
            found[end["map_id"]][row.id] = (end["items"], end["succeeded"], end["dead"], end["cancelled"])
    return found


def derived_tasks(relations: Relations, snapshot: StoreSnapshot) -> Iterator[SubmittedTask]:
    """Yield the tasks that no client enqueued by itself, and that have to be there all the same."""
    for stored in relations.maps:
        sent = relations.sent_maps.get(stored.row.key or "")
        if sent is None:
            continue
        for item in stored.items:
            if item.position < len(sent.digests):
                yield SubmittedTask(item.task_id, sent.digests[item.position])
        for callback in stored.callbacks:
            if callback == stored.row.callback_id:
                yield SubmittedTask(callback, snapshot.payloads.get(callback, ""))
    for task_id, of_parent in _children(snapshot).items():
        if task_id in snapshot.rows or task_id in relations.purged:
            for child in of_parent.values():
                yield SubmittedTask(child.id, snapshot.payloads.get(child.id, ""))


def relations_are_kept(relations: Relations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    """Yield what is wrong with the maps, the tasks after others, and the waits of a run."""
    yield from _maps_are_exact(relations, snapshot)
    for task_id, edges in relations.edges.items():
        if (row := snapshot.rows.get(task_id)) is not None:
            yield from _edges_are_kept(row, edges, relations, snapshot)
    yield from _waits_return_the_same(relations, snapshot)


def may_be_cancelled(task_id: str, relations: Relations, snapshot: StoreSnapshot) -> bool:
    """Return whether a task may be cancelled without a request: its parent failed, or its map was cancelled."""
    edges = relations.edges.get(task_id)
    if edges is not None and edges.on_failure == "cancel":
        return any(_has_failed(parent, relations, snapshot) for parent in edges.parents)
    return any(
        stored.row.cancelled_at is not None and any(item.task_id == task_id for item in stored.items)
        for stored in relations.maps
    )


# --- maps ----------------------------------------------------------------------------------------------


def _maps_are_exact(relations: Relations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    by_key = Counter(stored.row.key for stored in relations.maps)
    for key, sent in relations.sent_maps.items():
        if sent.is_answered and not by_key[key]:
            yield Violation(MAP, "", f"map {key} was accepted and is missing")
        if by_key[key] > 1:
            yield Violation(MAP, "", f"there are {by_key[key]} maps with the key {key}")
    for stored in relations.maps:
        for what in _of_map(stored, relations, snapshot):
            first = stored.items[0].task_id if stored.items else ""
            yield Violation(MAP, first, f"map {stored.row.key}: {what}")


def _of_map(stored: StoredMap, relations: Relations, snapshot: StoreSnapshot) -> Iterator[str]:
    row, sent = stored.row, relations.sent_maps.get(stored.row.key or "")
    if sent is None:
        yield "exists, though nobody enqueued it"
        return
    positions = [item.position for item in stored.items]
    is_whole = len(positions) == len(sent.digests)
    if row.items != len(sent.digests) or len(set(positions)) != len(positions):
        yield f"has {row.items} items at {positions}, and {len(sent.digests)} were sent"
    if not is_whole and not relations.purged:
        yield f"lists {len(positions)} of {len(sent.digests)} items"
    states = Counter(snapshot.rows[item.task_id].state for item in stored.items)
    found = (stored.counts.succeeded, stored.counts.dead, stored.counts.cancelled)
    recount = (states[State.SUCCEEDED], states[State.DEAD], states[State.CANCELLED])
    if (found != recount) if is_whole else any(a < b for a, b in zip(found, recount, strict=True)):
        yield f"counts {found}, and its items are {recount}"
    if sum(found) != row.items:
        yield f"counts {sum(found)} of {row.items} items at the end"
    if row.ended_at is None:
        yield "did not end"
        return
    ended = (row.succeeded, row.dead, row.cancelled)
    is_as_it_ended = is_whole and not any(snapshot.rows[item.task_id].redrives for item in stored.items)
    if sum(ended) != row.items or (is_as_it_ended and ended != recount):
        yield f"ended with {ended}, and its items are {recount}"
    if any(
        (snapshot.rows[item.task_id].finished_at or 0) > row.ended_at + _LATE_SECONDS
        for item in stored.items
        if is_as_it_ended
    ):
        yield "ended before its last item"
    yield from _callback_is_one(stored, relations)


def _callback_is_one(stored: StoredMap, relations: Relations) -> Iterator[str]:
    row = stored.row
    if row.on_complete is None:
        if stored.callbacks:
            yield f"has no callback, and {len(stored.callbacks)} were enqueued"
        return
    if list(stored.callbacks) != [row.callback_id] and row.callback_id not in relations.purged:
        yield f"has the callback {row.callback_id}, and {sorted(stored.callbacks)} were enqueued"
    for given in stored.callbacks.values():
        if given != (row.items, row.succeeded, row.dead, row.cancelled):
            yield f"its callback was given {given}"


# --- tasks after others --------------------------------------------------------------------------------


def _edges_are_kept(
    row: TaskRow, edges: ParentEdges, relations: Relations, snapshot: StoreSnapshot
) -> Iterator[Violation]:
    begun_at = min(
        (entry.at for entry in snapshot.histories.get(row.id, ()) if entry.kind == "run"), default=None
    )
    for parent in edges.parents:
        parent_row = snapshot.rows.get(parent)
        if parent_row is None:
            continue  # deleted: only known are its descendants
        is_failed = parent_row.state in {State.DEAD, State.CANCELLED}
        what = f"({edges.on_failure}) after {parent}, which is {parent_row.state}"
        if begun_at is not None and edges.on_failure != "run" and is_failed:
            yield Violation(AFTER, row.id, f"ran {what}")
        elif (
            begun_at is not None and begun_at < (_ended_at(parent_row, snapshot) or begun_at) - _LATE_SECONDS
        ):
            yield Violation(AFTER, row.id, f"ran {what}, before that one ended")
        elif begun_at is not None and parent_row.state not in FINAL and not parent_row.redrives:
            yield Violation(AFTER, row.id, f"ran {what}")
        elif is_failed and edges.on_failure == "cancel" and row.state is not State.CANCELLED:
            yield Violation(AFTER, row.id, f"is {row.state} {what}")


def _ended_at(row: TaskRow, snapshot: StoreSnapshot) -> float | None:
    """Return when a task became final first; None if it did not."""
    ends = [
        entry.ended_at
        for entry in snapshot.histories.get(row.id, ())
        if entry.kind == "run" and entry.outcome in FINAL and entry.ended_at is not None
    ]
    return min(ends, default=row.finished_at)


def _has_failed(task_id: str, relations: Relations, snapshot: StoreSnapshot) -> bool:
    """Return whether a task was dead or cancelled at some time, or deleted."""
    row = snapshot.rows.get(task_id)
    if row is None:
        return task_id in relations.purged
    return row.state in {State.DEAD, State.CANCELLED} or row.redrives > 0


# --- waits ---------------------------------------------------------------------------------------------


def _waits_return_the_same(relations: Relations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for note in relations.notes:
        values[note.task_id, note.wait].add(note.value)
    children = _children(snapshot)
    for (task_id, wait), got in values.items():
        if len(got) > 1:
            yield Violation(WAIT, task_id, f"runs got different values from wait {wait}: {sorted(got)}")
        expected = (
            relations.events.get(task_id) if wait == "event" else _child_end(children[task_id].get(wait))
        )
        if task_id in snapshot.rows and expected not in got:
            yield Violation(WAIT, task_id, f"wait {wait} returned {sorted(got)} instead of {expected}")
    for task_id, of_parent in children.items():
        parent = snapshot.rows.get(task_id)
        if parent is None or parent.state is not State.SUCCEEDED:
            continue
        for wait, child in of_parent.items():
            if (task_id, wait) not in values:
                yield Violation(WAIT, task_id, f"succeeded without the result of child {wait}")
            late = (child.finished_at or 0.0) - (parent.finished_at or 0.0)
            if child.state not in FINAL or late > _LATE_SECONDS:
                yield Violation(WAIT, task_id, f"succeeded before child {wait} had ended")


def _children(snapshot: StoreSnapshot) -> defaultdict[str, dict[str, TaskRow]]:
    """Return the children that tasks enqueued, by parent and number."""
    found: defaultdict[str, dict[str, TaskRow]] = defaultdict(dict)
    for row in snapshot.rows.values():
        if row.key is not None and row.key.startswith("child "):
            number, _, parent = row.key.removeprefix("child ").partition(" of ")
            found[parent][number] = row
    return found


def _child_end(row: TaskRow | None) -> str | None:
    if row is None:
        return None
    return str(row.run) if row.state is State.SUCCEEDED else FAILED
