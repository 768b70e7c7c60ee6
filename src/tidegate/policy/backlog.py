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

from tidegate.domain.durations import format_duration
from tidegate.limits import gate as gates
from tidegate.limits import learned_limits
from tidegate.limits.admission import Block, GateCheck, find_block
from tidegate.limits.formatting import format_block, format_exhausted_limit, format_gate
from tidegate.limits.settings import GateKind
from tidegate.limits.values import GateRow

WORKERS = "workers"
"""What holds a task that no live worker runs."""

UnservedReason = Callable[[str, str], str]
"""(queue, function) → why no live worker runs such tasks; empty if one does."""


class WaitKind(StrEnum):
    """How a task is held."""

    PACED = "paced"
    """It waits for its slot of a rate, token or in-flight limit."""
    BLOCKED = "blocked"
    """It cannot run at any pace: its gate is parked, a long window is used up, or no live worker runs it."""


class ChannelCount(NamedTuple):
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


class GateStatus:
    """What one gate lets through now.

    Args:
        row: The gate as stored.
        in_flight: Runs and calls of it under way.
        now: By the store's clock.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float) -> None:
        self.row = row
        self.block: Block | None = find_block(row, now)
        self.tasks = 0
        """Ready tasks that it holds or lets through, over all queues."""
        self._in_flight = in_flight
        self._now = now
        self._gate_check = GateCheck(row, in_flight, now)
        self.left = 0 if self.block is not None else self._gate_check.free_slots()
        """How many more tasks it lets through now; None: any number."""

    @property
    def name(self) -> str:
        """Who holds, in words."""
        if self.row.kind is GateKind.UPSTREAM:
            return f"upstream {self.row.name}"
        return f"rate limit of {self.row.name}"

    @property
    def has_rate_limit(self) -> bool:
        """Whether it has a rate limit."""
        return self._gate_check.seconds_until(1) is not None

    def drain_seconds(self) -> float:
        """Return the seconds until its rate limits let the last of `tasks` start; 0 if it has none."""
        found = self._gate_check.seconds_until(max(1, self.tasks))
        return 0.0 if found is None else found[0]

    def reasons(self, tasks: int = 1) -> list[str]:
        """Return why so many tasks cannot all start now; nothing if they can."""
        row, now = self.row, self._now
        gate = gates.gate_at(row.gate, row.limits, now)
        if self.block is not None:
            return [f"gate: {format_block(self.block, row.limits, now)}"]
        if gates.admits_only_probes(gate):
            return [f"gate: {format_gate(gate, row.limits, now)}"]
        found = []
        room = gates.free_in_flight(gate, row.limits, self._in_flight)
        if row.kind is GateKind.UPSTREAM and room is not None and room < tasks:
            found.append(self._format_in_flight())
        if (spent := learned_limits.exhausted_limit(gate.learned_limits, now)) is not None:
            found.append(f"limit: {format_exhausted_limit(spent, now)}")
        paced = self._gate_check.seconds_until(tasks)
        if paced is not None and (self._gate_check.free_slots() or 0) < tasks and spent is None:
            window, first = paced[1], self._gate_check.seconds_until(1)
            wait = 0.0 if first is None else first[0]
            size = f"{window.amount} in {format_duration(window.seconds)}"
            when = f", next slot in {format_duration(wait)}" if wait > 0 else ""
            found.append(f"limit: {window.name}, {size}{when}")
        return found

    def _format_in_flight(self) -> str:
        most = self.row.limits.max_in_flight
        if most is not None and self._in_flight >= most:
            return f"limit: max_in_flight {most}, {self._in_flight} in flight; a slot is free when one ends"
        if most is not None:
            return f"limit: max_in_flight {most}, {self._in_flight} in flight"
        return f"slow start: {self._in_flight} in flight, more after each call that goes well"


class _QueueSorter:
    """Sorts the lanes of one queue."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self._reasons: dict[tuple[WaitKind, str], tuple[int, GateStatus | None]] = {}
        self._rate_limited: list[GateStatus] = []

    def add(self, channel: ChannelCount, statuses: Sequence[GateStatus], unserved: str) -> None:
        """Take a lane, the gates its tasks must pass, and why no live worker runs it (empty: one does)."""
        shut = next((status for status in statuses if status.block is not None), None)
        if unserved or shut is not None:
            self.backlog.blocked += channel.tasks
            self._add_reason(WaitKind.BLOCKED, channel.tasks, unserved or shut)
            return
        for status in statuses:
            status.tasks += channel.tasks
        free = _take_slots(statuses, channel.tasks)
        self.backlog.ready += free
        self.backlog.paced += channel.tasks - free
        oldest = self.backlog.oldest_at
        self.backlog.oldest_at = channel.oldest_at if oldest is None else min(oldest, channel.oldest_at)
        if free < channel.tasks:
            self._add_reason(WaitKind.PACED, channel.tasks - free, min(statuses, key=_left))
        rate_limited = [status for status in statuses if status.has_rate_limit]
        if rate_limited:
            self.backlog.limited += channel.tasks
            self._rate_limited += rate_limited

    def finished(self) -> Backlog:
        """Return the backlog once every lane of every queue was added."""
        self.backlog.waits = [
            WaitReason(kind, WORKERS, name, tasks)
            if status is None
            else WaitReason(kind, name, "; ".join(status.reasons(max(1, status.tasks))), tasks)
            for (kind, name), (tasks, status) in self._reasons.items()
        ]
        self.backlog.limited_seconds = max((each.drain_seconds() for each in self._rate_limited), default=0.0)
        return self.backlog

    def _add_reason(self, kind: WaitKind, tasks: int, by: GateStatus | str | None) -> None:
        status = by if isinstance(by, GateStatus) else None
        name = status.name if status is not None else str(by)
        before, _ = self._reasons.get((kind, name), (0, None))
        self._reasons[kind, name] = (before + tasks, status)


def count_backlogs(
    channels: Iterable[ChannelCount],
    gate_rows: Iterable[GateRow],
    in_flight: Mapping[str, int],
    now: float,
    unserved: UnservedReason | None = None,
) -> dict[str, Backlog]:
    """Return the backlog of each queue that has ready tasks.

    Args:
        channels: The ready tasks, in any order; a lane may come in parts.
        gate_rows: Every gate the store keeps.
        in_flight: Runs and calls under way by upstream; those that no limit counts may be left out.
        now: By the store's clock.
        unserved: Which tasks no live worker runs; None: not judged.
    """
    statuses = {
        (row.kind, row.name): GateStatus(row, in_flight.get(row.name, 0), now)
        for row in gate_rows
        if row.kind is not GateKind.SYSTEM
    }
    queues: dict[str, _QueueSorter] = defaultdict(_QueueSorter)
    for channel in sorted(channels, key=lambda channel: channel.oldest_at):
        keys = (GateKind.UPSTREAM, channel.upstream), (GateKind.FUNCTION, channel.function)
        passed = [statuses[key] for key in keys if key[1] and key in statuses]
        queues[channel.queue].add(
            channel, passed, unserved(channel.queue, channel.function) if unserved else ""
        )
    return {name: queue.finished() for name, queue in queues.items()}


def _take_slots(statuses: Sequence[GateStatus], tasks: int) -> int:
    """Let as many of these tasks through all of the gates as may start now; return how many."""
    free = min([tasks, *(status.left for status in statuses if status.left is not None)])
    for status in statuses:
        if status.left is not None:
            status.left -= free
    return free


def _left(status: GateStatus) -> float:
    return math.inf if status.left is None else status.left
