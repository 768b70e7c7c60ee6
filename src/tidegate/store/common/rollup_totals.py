"""Sums of a batch of outcomes for the roll-up, so that each channel is written once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.domain.states import State
from tidegate.store.common.outcomes import EndedRunRow

RollupKey = tuple[str, str, str, str]
"""(queue, function, upstream, tenant)."""


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of outcomes of one channel."""

    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    released: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0


@dataclass(slots=True)
class RollupTotals:
    """Sums by channel."""

    by_channel: dict[RollupKey, OutcomeCounts] = field(default_factory=dict)

    def of(self, where: RollupKey) -> OutcomeCounts:
        """Return the sums of one channel, for the caller to add to."""
        return self.by_channel.setdefault(where, OutcomeCounts())

    def add(self, now: float, run: EndedRunRow, state: State) -> None:
        """Count a run that ended now without success, and the next state of its task."""
        sums = self.of((run.queue, run.function, run.upstream, run.tenant))
        sums.run_seconds += now - run.started_at
        sums.wait_seconds += run.started_at - run.ready_at
        sums.dead += state is State.DEAD
        sums.cancelled += state is State.CANCELLED
        sums.retried += state is State.RETRYING
        sums.released += state is State.READY

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        """Return the rows to add to the minute of `now`, one per channel, in a fixed order.

        Columns: minute, queue, function, upstream, tenant, dead, cancelled, retried, released, seconds run,
            seconds waited, and `now` if a task became final.
        """
        minute = int(now // 60)
        return [
            (
                minute,
                *where,
                sums.dead,
                sums.cancelled,
                sums.retried,
                sums.released,
                sums.run_seconds,
                sums.wait_seconds,
                now if sums.dead or sums.cancelled else None,
            )
            for where, sums in sorted(self.by_channel.items())
        ]
