"""Builds the input of drain estimates from counts and gates that the store read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidegate.limits import gate as gates
from tidegate.limits import learned_limits
from tidegate.limits.admission import GateCheck
from tidegate.limits.blocks import find_block
from tidegate.limits.pauses import Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.tokens import calls_per_second
from tidegate.limits.values import GateRow, is_key_gate
from tidegate.policy.backlog import ChannelCount
from tidegate.policy.drain import DrainChannel, DrainLimit, DrainWork, DrainWorker
from tidegate.policy.drain_estimate import steady_rate

MINUTES = 10
"""How many full minutes of enqueues the rate of arrivals is computed from."""

Name = tuple[str, str, str]
"""Queue, upstream and function."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The runs that ended lately."""

    seconds: float = 0.0
    runs: int = 0
    ends: int = 0
    """How many tasks became final with these runs."""


@dataclass(frozen=True, slots=True)
class DrainCounts:
    """What the store counted."""

    ready: Sequence[ChannelCount]
    running: Mapping[tuple[str, str, str, int], int]
    """The tasks by queue, upstream, function and priority."""
    run_times: Mapping[Name, RunTimes]
    enqueued: Mapping[Name, Mapping[int, int]]
    """By minute."""
    gate_rows: Sequence[GateRow]
    in_flight: Mapping[str, int]
    pauses: Pauses
    workers: Sequence[DrainWorker]
    now: float
    unserved: Callable[[str, str], str] | None = None


@dataclass(slots=True)
class _Channel:
    runnable: int = 0
    running: int = 0
    oldest_at: float | None = None
    arrivals: float = 0.0


@dataclass(slots=True)
class _Blocks:
    """Which channels are blocked."""

    counts: DrainCounts
    rows: Mapping[tuple[GateKind, str], GateRow] = field(default_factory=dict)

    def passed(self, upstream: str, function: str) -> list[GateRow]:
        """Return the gates that tasks of this upstream and function must pass."""
        keys = (GateKind.UPSTREAM, upstream), (GateKind.FUNCTION, function)
        return [self.rows[key] for key in keys if key[1] and key in self.rows]

    def is_blocked(self, queue: str, upstream: str, function: str) -> bool:
        """Return whether such tasks cannot run at any pace."""
        counts = self.counts
        return (
            counts.pauses.of(queue, function) is not None
            or any(find_block(row, counts.now) is not None for row in self.passed(upstream, function))
            or bool(counts.unserved and counts.unserved(queue, function))
        )


def build_drain_work(counts: DrainCounts) -> DrainWork:
    """Return the work that is not blocked, with the limits and workers that set its pace."""
    blocks = _Blocks(counts, {(row.kind, row.name): row for row in counts.gate_rows})
    found: dict[tuple[str, str, str, int], _Channel] = {}
    for ready in counts.ready:
        if not blocks.is_blocked(ready.queue, ready.upstream, ready.function):
            key = (ready.queue, ready.upstream, ready.function, ready.priority)
            channel = found.setdefault(key, _Channel())
            channel.runnable += ready.tasks
            oldest = channel.oldest_at
            channel.oldest_at = ready.oldest_at if oldest is None else min(oldest, ready.oldest_at)
    for key, running in counts.running.items():
        found.setdefault(key, _Channel()).running += running
    _add_arrivals(counts, found, blocks)
    channels = [_channel(counts, blocks, key, channel) for key, channel in found.items()]
    return DrainWork(channels, tuple(_limits(counts)), counts.workers, counts.now)


def _add_arrivals(
    counts: DrainCounts, found: dict[tuple[str, str, str, int], _Channel], blocks: _Blocks
) -> None:
    """Add new tasks per second to the most urgent channel of their name.

    Enqueued tasks are not counted by priority.
    """
    last = int(counts.now // 60)
    for name, by_minute in counts.enqueued.items():
        rate = steady_rate([by_minute.get(minute, 0) for minute in range(last - MINUTES, last)])
        if rate and not blocks.is_blocked(*name):
            key = min((key for key in found if key[:3] == name), default=(*name, 1))
            found.setdefault(key, _Channel()).arrivals += rate


def _channel(
    counts: DrainCounts, blocks: _Blocks, key: tuple[str, str, str, int], channel: _Channel
) -> DrainChannel:
    queue, upstream, function, priority = key
    times = counts.run_times.get((queue, upstream, function), RunTimes())
    seconds = times.seconds / times.runs if times.runs else None
    if seconds is None:
        learned = (
            row.gate for row in blocks.passed(upstream, function) if row.gate.learned_rate.counted_at > 0
        )
        seconds = next((gate.typical_seconds for gate in learned), None)
    return DrainChannel(
        queue,
        upstream,
        function,
        priority,
        channel.runnable,
        channel.running,
        channel.oldest_at,
        seconds,
        max(1.0, times.runs / times.ends) if times.ends else 1.0,
        channel.arrivals,
    )


def _limits(counts: DrainCounts) -> Iterator[DrainLimit]:
    for row in counts.gate_rows:
        if row.kind is GateKind.SYSTEM or is_key_gate(row.name):
            continue
        gate = gates.gate_at(row.gate, row.limits, counts.now)
        limits = learned_limits.with_learned_rates(row.limits, gate, counts.now)
        check = GateCheck(row, counts.in_flight.get(row.name, 0), counts.now)
        is_upstream = row.kind is GateKind.UPSTREAM
        yield DrainLimit(
            f"upstream {row.name}" if is_upstream else f"the rate limit of {row.name}",
            row.name if is_upstream else "",
            "" if is_upstream else row.name,
            min((calls_per_second(window, gate) for window in limits.windows), default=None),
            partial(_start_seconds, check),
            limits.max_in_flight,
        )


def _start_seconds(check: GateCheck, runs: int) -> float:
    found = check.seconds_until(max(1, runs))
    return 0.0 if found is None else found[0]
