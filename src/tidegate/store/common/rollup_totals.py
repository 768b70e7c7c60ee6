"""Sums of a batch of outcomes for the roll-up, so that each channel is written once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.domain.durations import bucket_of
from tidegate.domain.states import State
from tidegate.store.common.outcomes import EndedRunRow

RollupKey = tuple[str, str, str, str]
"""(queue, function, upstream, tenant)."""


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of outcomes of runs of one channel that started in one minute and took about as long."""

    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    released: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0


RunTimes = tuple[int | None, int | None, int | None]
"""The minute of the start, the bucket of the run time and that of the wait; None if there was no run."""

_NO_RUN: RunTimes = (None, None, None)


@dataclass(slots=True)
class RollupTotals:
    """Sums by channel."""

    _sums: dict[tuple[RollupKey, RunTimes], OutcomeCounts] = field(default_factory=dict)

    def of(self, where: RollupKey, times: RunTimes = _NO_RUN) -> OutcomeCounts:
        """Return the sums of one channel, for the caller to add to."""
        return self._sums.setdefault((where, times), OutcomeCounts())

    def add(self, now: float, run: EndedRunRow, state: State) -> None:
        """Count a run that ended now without success, and the next state of its task."""
        ran, waited = now - run.started_at, run.started_at - run.ready_at
        times = (int(run.started_at // 60), bucket_of(ran), bucket_of(waited))
        sums = self.of((run.queue, run.function, run.upstream, run.tenant), times)
        sums.run_seconds += ran
        sums.wait_seconds += waited
        sums.dead += state is State.DEAD
        sums.cancelled += state is State.CANCELLED
        sums.retried += state is State.RETRYING
        sums.released += state is State.READY

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        """Return the rows to add to the minute of `now`.

        Columns: minute, queue, function, upstream, tenant, dead, cancelled, retried, released, seconds run,
            seconds waited, `now` if a task became final, and the `RunTimes`.
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
                *times,
            )
            for (where, times), sums in self._sums.items()
        ]
