"""Sorts ready tasks into tasks that can run now, tasks that wait for a slot (*paced*), and *blocked* tasks.

`status`, the API's statistics, `upstreams` and `tasks why` all use this rule. The store counts the ready
tasks of each channel and passes the counts in with its gates.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.text import format_duration
from tidegate.limits import gate as gates
from tidegate.limits import in_flight_learning, learned_limits, probes
from tidegate.limits.admission import GateCheck
from tidegate.limits.blocks import Block, find_block
from tidegate.limits.formatting import format_block, format_exhausted_limit, format_gate, format_window
from tidegate.limits.pauses import NO_PAUSES, Pause, Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.values import Gate, GateRow

WORKERS = "workers"
"""`WaitReason.by` of tasks that no live worker runs."""

UnservedReason = Callable[[str, str], str]
"""Takes a queue and a function. Returns why no live worker runs such tasks; empty if a worker does."""


class WaitKind(StrEnum):
    """How a ready task waits."""

    PACED = "paced"
    """The task waits for its slot of a rate, token or in-flight limit."""
    BLOCKED = "blocked"
    """The task cannot run at all: its queue or function is paused, its gate is parked, a long window is used
    up, or no live worker runs it."""


class ChannelCount(NamedTuple):
    """The ready tasks of one queue, upstream and function."""

    queue: str
    upstream: str
    function: str
    tasks: int
    oldest_at: float
    """When the first of these tasks became ready."""
    priority: int = 1
    """0 for interactive, 2 for bulk."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why some ready tasks of a queue do not start now."""

    kind: WaitKind
    by: str
    """`queue NAME` or `function NAME` if that is paused, `upstream NAME`, `rate limit of FUNCTION`, or
    `workers`."""
    reason: str
    """The explanation for people, with the time at which the wait ends if that is known."""
    tasks: int


@dataclass(slots=True)
class Backlog:
    """The ready tasks of one queue, counted by what they wait for."""

    ready: int = 0
    """Tasks that may start as soon as a worker has a free slot."""
    paced: int = 0
    """Tasks that wait for a slot of a limit."""
    blocked: int = 0
    """Tasks that cannot run."""
    oldest_at: float | None = None
    """When the oldest task that is not blocked became ready; None if there is none."""
    waits: list[WaitReason] = field(default_factory=list)


class GateStatus:
    """How many tasks one gate admits now, and why it admits no more.

    Args:
        row: The gate's row.
        in_flight: How many runs and calls of the gate are in flight.
        now: The current time by the store's clock.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float) -> None:
        self.row = row
        self.block: Block | None = find_block(row, now)
        self.tasks = 0
        """The ready tasks that must pass this gate, over all queues."""
        self._in_flight = in_flight
        self._now = now
        self._gate_check = GateCheck(row, in_flight, now)
        self.left = 0 if self.block is not None else self._gate_check.free_slots()
        """How many more tasks the gate admits now; None for any number."""

    @property
    def name(self) -> str:
        """The gate's name for people: `upstream openai` or `rate limit of resize`."""
        if self.row.kind is GateKind.UPSTREAM:
            return f"upstream {self.row.name}"
        return f"rate limit of {self.row.name}"

    def reasons(self, tasks: int = 1) -> list[str]:
        """Return why `tasks` tasks cannot all start now; empty if they can."""
        row, now = self.row, self._now
        gate = gates.gate_at(row.gate, row.limits, now)
        if self.block is not None:
            return [f"gate: {format_block(self.block, row.limits, now)}"]
        if probes.admits_only_probes(gate):
            return [f"gate: {format_gate(gate, row.limits, now)}"]
        found = []
        free = in_flight_learning.free_in_flight(gate, row.limits, self._in_flight)
        if row.kind is GateKind.UPSTREAM and free is not None and free < tasks:
            found.append(self._format_in_flight(gate))
        if (spent := learned_limits.exhausted_limit(gate.learned_limits, now)) is not None:
            found.append(f"limit: {format_exhausted_limit(spent, now)}")
        paced = self._gate_check.seconds_until(tasks)
        if paced is not None and (self._gate_check.free_slots() or 0) < tasks and spent is None:
            window, first = paced[1], self._gate_check.seconds_until(1)
            wait = 0.0 if first is None else first[0]
            when = f", next slot in {format_duration(wait)}" if wait > 0 else ""
            found.append(f"limit: {window.name}, {format_window(window)}{when}")
        return found

    def _format_in_flight(self, gate: Gate) -> str:
        limit = self.row.limits.max_in_flight
        if limit is not None and self._in_flight >= limit:
            return f"limit: max_in_flight {limit}, {self._in_flight} in flight; a slot is free when one ends"
        if limit is not None:
            return f"limit: max_in_flight {limit}, {self._in_flight} in flight"
        if gate.slow_start_at is None and (most := gate.in_flight.target) is not None:
            return f"limit: {self._in_flight} of at most {most:.0f} in flight; more did not finish faster"
        return f"slow start: {self._in_flight} in flight, more after each call that succeeds"


class _QueueSorter:
    """Sorts the channels of one queue."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self._reasons: dict[tuple[WaitKind, str], tuple[int, GateStatus | Pause | None]] = {}

    def add(self, channel: ChannelCount, statuses: Sequence[GateStatus], unserved: str) -> None:
        """Add a channel, the gates its tasks must pass, and why no worker runs it (empty if one does)."""
        blocking = next((status for status in statuses if status.block is not None), None)
        if unserved or blocking is not None:
            self.backlog.blocked += channel.tasks
            self._add_reason(WaitKind.BLOCKED, channel.tasks, unserved or blocking)
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

    def add_paused(self, channel: ChannelCount, pause: Pause) -> None:
        """Add a channel whose queue or function is paused."""
        self.backlog.blocked += channel.tasks
        self._add_reason(WaitKind.BLOCKED, channel.tasks, pause)

    def finished(self, now: float) -> Backlog:
        """Return the backlog. Call this only after the channels of all queues were added."""
        self.backlog.waits = [
            WaitReason(kind, *_format_reason(name, by, now), tasks)
            for (kind, name), (tasks, by) in self._reasons.items()
        ]
        return self.backlog

    def _add_reason(self, kind: WaitKind, tasks: int, by: GateStatus | Pause | str | None) -> None:
        source: GateStatus | Pause | None
        if isinstance(by, Pause):
            source, name = by, f"{by.kind} {by.name}"
        elif isinstance(by, GateStatus):
            source, name = by, by.name
        else:
            source, name = None, str(by)
        before, _ = self._reasons.get((kind, name), (0, None))
        self._reasons[kind, name] = (before + tasks, source)


def count_backlogs(
    channels: Iterable[ChannelCount],
    gate_rows: Iterable[GateRow],
    in_flight: Mapping[str, int],
    now: float,
    unserved: UnservedReason | None = None,
    pauses: Pauses = NO_PAUSES,
) -> dict[str, Backlog]:
    """Return the backlog of each queue that has ready tasks.

    Args:
        channels: The ready tasks by channel, in any order. A channel may occur several times.
        gate_rows: Every gate in the store.
        in_flight: Runs and calls in flight, by upstream. Upstreams without an in-flight limit may be missing.
        now: The current time by the store's clock.
        unserved: Returns why no live worker runs a task; None to leave that out.
        pauses: The paused queues and functions.
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
        if pause := pauses.of(channel.queue, channel.function):
            queues[channel.queue].add_paused(channel, pause)
            continue
        queues[channel.queue].add(
            channel, passed, unserved(channel.queue, channel.function) if unserved else ""
        )
    return {name: queue.finished(now) for name, queue in queues.items()}


def _format_reason(name: str, by: GateStatus | Pause | None, now: float) -> tuple[str, str]:
    """Return what holds tasks back, and why, for people."""
    if isinstance(by, Pause):
        return name, by.describe(now)
    if by is None:
        return WORKERS, name
    return name, "; ".join(by.reasons(max(1, by.tasks)))


def _take_slots(statuses: Sequence[GateStatus], tasks: int) -> int:
    """Take slots for these tasks from all gates, as many as are free now. Return how many tasks start."""
    free = min([tasks, *(status.left for status in statuses if status.left is not None)])
    for status in statuses:
        if status.left is not None:
            status.left -= free
    return free


def _left(status: GateStatus) -> float:
    return math.inf if status.left is None else status.left
