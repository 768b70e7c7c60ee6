"""Which ready tasks can run now, which wait for a slot (*paced*), and which cannot run (*blocked*).

One rule for `status`, the API's figures, `upstreams` and `tasks why`. Pure: a store counts the lanes and
passes them in with its gates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.upstream import GateKind, GateRow
from tidegate.policy import gate as gates
from tidegate.policy import learned
from tidegate.policy.admission import Block, Door, blocked
from tidegate.policy.gate_words import block_in_words, gate_in_words, spent_in_words
from tidegate.policy.words import duration

WORKERS = "workers"
"""What holds a task that no live worker runs."""

Unserved = Callable[[str, str], str]
"""(queue, function) → why no live worker runs such tasks; empty if one does."""


class WaitKind(StrEnum):
    """How a task is held."""

    PACED = "paced"
    """It waits for its slot of a rate, token or in-flight limit."""
    BLOCKED = "blocked"
    """It cannot run at any pace: its gate is parked, a long window is used up, or no live worker runs it."""


class Lane(NamedTuple):
    """The ready tasks of one queue, upstream and function."""

    queue: str
    upstream: str
    function: str
    tasks: int
    oldest_at: float
    """When the first of them became ready."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why some ready tasks of a queue do not start now."""

    kind: WaitKind
    by: str
    """`upstream NAME`, `rate limit of FUNCTION`, or `workers`."""
    reason: str
    """In words, with the time at which it ends where that is known."""
    tasks: int


@dataclass(slots=True)
class Backlog:
    """The ready tasks of one queue, sorted by what they wait for."""

    ready: int = 0
    """May start as soon as a slot of a worker is free."""
    paced: int = 0
    blocked: int = 0
    oldest_at: float | None = None
    """When the longest-waiting task became ready that is not blocked."""
    limited: int = 0
    """Of those that are not blocked: how many a rate limit counts."""
    limited_seconds: float = 0.0
    """Until the last of those may start, at the rate of their limits."""
    waits: list[WaitReason] = field(default_factory=list)


class GateStanding:
    """What one gate lets through now.

    Args:
        row: The gate as stored.
        in_flight: Runs and calls of it under way.
        now: By the store's clock.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float) -> None:
        self.row = row
        self.block: Block | None = blocked(row, now)
        self.tasks = 0
        """Ready tasks that it holds or lets through, over all queues."""
        self._in_flight = in_flight
        self._now = now
        self._door = Door(row, in_flight, now)
        self.left = 0 if self.block is not None else self._door.open_slots()
        """How many more tasks it lets through now; None: any number."""

    @property
    def name(self) -> str:
        """Who holds, in words."""
        if self.row.kind is GateKind.UPSTREAM:
            return f"upstream {self.row.name}"
        return f"rate limit of {self.row.name}"

    @property
    def is_rated(self) -> bool:
        """Whether it has a rate limit."""
        return self._door.seconds_for(1) is not None

    def drain_seconds(self) -> float:
        """Return the seconds until its rate limits let the last of `tasks` start; 0 if it has none."""
        found = self._door.seconds_for(max(1, self.tasks))
        return 0.0 if found is None else found[0]

    def reasons(self, tasks: int = 1) -> list[str]:
        """Return why so many tasks cannot all start now; nothing if they can."""
        row, now = self.row, self._now
        gate = gates.as_of(row.gate, row.limits, now)
        if self.block is not None:
            return [f"gate: {block_in_words(self.block, row.limits, now)}"]
        if gates.is_held(gate):
            return [f"gate: {gate_in_words(gate, row.limits, now)}"]
        found = []
        room = gates.room(gate, row.limits, self._in_flight)
        if row.kind is GateKind.UPSTREAM and room is not None and room < tasks:
            found.append(self._in_flight_words())
        if (spent := learned.spent(gate.learned, now)) is not None:
            found.append(f"limit: {spent_in_words(spent, now)}")
        paced = self._door.seconds_for(tasks)
        if paced is not None and (self._door.open_slots() or 0) < tasks and spent is None:
            window, first = paced[1], self._door.seconds_for(1)
            wait = 0.0 if first is None else first[0]
            size = f"{window.amount} in {duration(window.seconds)}"
            when = f", next slot in {duration(wait)}" if wait > 0 else ""
            found.append(f"limit: {window.name}, {size}{when}")
        return found

    def _in_flight_words(self) -> str:
        most = self.row.limits.max_in_flight
        if most is not None and self._in_flight >= most:
            return f"limit: max_in_flight {most}, {self._in_flight} in flight; a slot is free when one ends"
        if most is not None:
            return f"limit: max_in_flight {most}, {self._in_flight} in flight"
        return f"slow start: {self._in_flight} in flight, more after each call that goes well"


class _Queue:
    """Sorts the lanes of one queue."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self._reasons: dict[tuple[WaitKind, str], tuple[int, GateStanding | None]] = {}
        self._rated: list[GateStanding] = []

    def add(self, lane: Lane, standings: Sequence[GateStanding], unserved: str) -> None:
        """Take a lane, the gates its tasks must pass, and why no live worker runs it (empty: one does)."""
        shut = next((standing for standing in standings if standing.block is not None), None)
        if unserved or shut is not None:
            self.backlog.blocked += lane.tasks
            self._add_reason(WaitKind.BLOCKED, lane.tasks, unserved or shut)
            return
        for standing in standings:
            standing.tasks += lane.tasks
        free = _take(standings, lane.tasks)
        self.backlog.ready += free
        self.backlog.paced += lane.tasks - free
        oldest = self.backlog.oldest_at
        self.backlog.oldest_at = lane.oldest_at if oldest is None else min(oldest, lane.oldest_at)
        if free < lane.tasks:
            self._add_reason(WaitKind.PACED, lane.tasks - free, min(standings, key=_left))
        rated = [standing for standing in standings if standing.is_rated]
        if rated:
            self.backlog.limited += lane.tasks
            self._rated += rated

    def finished(self) -> Backlog:
        """Return the backlog once every lane of every queue was added."""
        self.backlog.waits = [
            WaitReason(kind, WORKERS, name, tasks)
            if standing is None
            else WaitReason(kind, name, "; ".join(standing.reasons(max(1, standing.tasks))), tasks)
            for (kind, name), (tasks, standing) in self._reasons.items()
        ]
        self.backlog.limited_seconds = max((each.drain_seconds() for each in self._rated), default=0.0)
        return self.backlog

    def _add_reason(self, kind: WaitKind, tasks: int, by: GateStanding | str | None) -> None:
        standing = by if isinstance(by, GateStanding) else None
        name = standing.name if standing is not None else str(by)
        before, _ = self._reasons.get((kind, name), (0, None))
        self._reasons[kind, name] = (before + tasks, standing)


def backlogs(
    lanes: Iterable[Lane],
    gate_rows: Iterable[GateRow],
    in_flight: Mapping[str, int],
    now: float,
    unserved: Unserved | None = None,
) -> dict[str, Backlog]:
    """Return the backlog of each queue that has ready tasks.

    Args:
        lanes: The ready tasks, in any order; a lane may come in parts.
        gate_rows: Every gate the store keeps.
        in_flight: Runs and calls under way by upstream; those that no limit counts may be left out.
        now: By the store's clock.
        unserved: Which tasks no live worker runs; None: not judged.
    """
    standings = {
        (row.kind, row.name): GateStanding(row, in_flight.get(row.name, 0), now)
        for row in gate_rows
        if row.kind is not GateKind.SYSTEM
    }
    queues: dict[str, _Queue] = defaultdict(_Queue)
    for lane in sorted(lanes, key=lambda lane: lane.oldest_at):
        keys = (GateKind.UPSTREAM, lane.upstream), (GateKind.FUNCTION, lane.function)
        passed = [standings[key] for key in keys if key[1] and key in standings]
        queues[lane.queue].add(lane, passed, unserved(lane.queue, lane.function) if unserved else "")
    return {name: queue.finished() for name, queue in queues.items()}


def _take(standings: Sequence[GateStanding], tasks: int) -> int:
    """Let as many of these tasks through all of the gates as may start now; return how many."""
    free = min([tasks, *(standing.left for standing in standings if standing.left is not None)])
    for standing in standings:
        if standing.left is not None:
            standing.left -= free
    return free


def _left(standing: GateStanding) -> float:
    return math.inf if standing.left is None else standing.left
