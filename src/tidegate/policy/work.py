"""Groups the work of a pool by the limits that apply to it, for autoscaling."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tidegate.limits import gate as gates
from tidegate.limits import learned_limits
from tidegate.limits.blocks import find_block
from tidegate.limits.pauses import Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.tokens import calls_per_second
from tidegate.limits.values import GateRow
from tidegate.policy.autoscale import SlotLimit, WorkGroup
from tidegate.policy.live_workers import ANY_QUEUE


@dataclass(slots=True)
class ChannelWork:
    """The tasks of one queue, upstream and function."""

    queue: str
    upstream: str
    function: str
    runnable: int = 0
    """Ready tasks, and tasks that are due."""
    running: int = 0
    run_seconds: float | None = None
    """How long a run took lately, on average; None if no run ended."""


@dataclass(frozen=True, slots=True)
class Work:
    """All tasks that workers run or could run, and the gates and pauses that hold them back."""

    channels: Sequence[ChannelWork]
    gate_rows: Sequence[GateRow]
    pauses: Pauses
    now: float
    """By the store's clock."""
    growing: frozenset[str] = frozenset()
    """The functions whose slots grow with `concurrency="auto"`."""


def work_groups(work: Work, queues: Collection[str]) -> list[WorkGroup]:
    """Return the work, grouped by the limits that apply to it.

    Tasks that are paused, or whose upstream is closed, count only while they run. A task that no live worker
    serves counts, because the pool may have no worker at all now.

    Args:
        work: What the store counted.
        queues: The queues of the pool; `*` for all.
    """
    rows = {(row.kind, row.name): row for row in work.gate_rows}
    groups = []
    for channel in work.channels:
        keys = (GateKind.UPSTREAM, channel.upstream), (GateKind.FUNCTION, channel.function)
        passed = [rows[key] for key in keys if key[1] and key in rows]
        is_blocked = work.pauses.of(channel.queue, channel.function) is not None or any(
            find_block(row, work.now) is not None for row in passed
        )
        groups.append(
            WorkGroup(
                runnable=0 if is_blocked else channel.runnable,
                running=channel.running,
                run_seconds=_run_seconds(channel, passed),
                slots_grow=channel.function in work.growing,
                limits=tuple(_limits(passed, work.now)),
                is_own=ANY_QUEUE in queues or channel.queue in queues,
            )
        )
    return groups


def _run_seconds(channel: ChannelWork, passed: Sequence[GateRow]) -> float | None:
    """Return how long a run of the channel took; if none ended, how long a run of its upstream took."""
    if channel.run_seconds is not None:
        return channel.run_seconds
    learned = (row.gate for row in passed if row.gate.learned_rate.counted_at > 0)
    return next((gate.typical_seconds for gate in learned), None)


def _limits(passed: Sequence[GateRow], now: float) -> Iterator[SlotLimit]:
    for row in passed:
        gate = gates.gate_at(row.gate, row.limits, now)
        limits = learned_limits.with_learned_rates(row.limits, gate, now)
        rate = min((calls_per_second(window, gate) for window in limits.windows), default=None)
        is_upstream = row.kind is GateKind.UPSTREAM
        name = f"upstream {row.name}" if is_upstream else f"rate limit of {row.name}"
        yield SlotLimit(name, rate, limits.max_in_flight)
