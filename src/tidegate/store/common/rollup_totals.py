"""Sums of a batch of outcomes for the roll-up, so that each channel is written once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.domain.durations import bucket_of
from tidegate.domain.states import FINAL, State
from tidegate.store.common.outcomes import EndedRunRow

RollupKey = tuple[str, str, str, str]
"""(queue, function, upstream, tenant)."""


@dataclass(slots=True)
class OutcomeCounts:
    """Counts of outcomes of runs of one channel that started in the same minute and took equally long."""

    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    released: int = 0
    run_seconds: float = 0.0
    wait_seconds: float = 0.0
    total_seconds: float = 0.0


class RunTimes(NamedTuple):
    """The buckets of the times of runs, and why the runs ended. None without a run."""

    started_minute: int | None = None
    ran: int | None = None
    waited: int | None = None
    took: int | None = None
    """The time from the enqueue of the task to its end; None if the task did not end."""
    reason: str | None = None
    """Why the runs were retried, or why their tasks died."""


_NO_RUN = RunTimes()


@dataclass(slots=True)
class RollupTotals:
    """Sums by channel."""

    _sums: dict[tuple[RollupKey, RunTimes], OutcomeCounts] = field(default_factory=dict)

    def of(self, where: RollupKey, times: RunTimes = _NO_RUN) -> OutcomeCounts:
        """Return the sums of one channel, for the caller to add to."""
        return self._sums.setdefault((where, times), OutcomeCounts())

    def add(self, now: float, run: EndedRunRow, state: State, reason: str) -> None:
        """Count a run that ended now without success, the next state of its task, and why."""
        ran, waited = now - run.started_at, run.started_at - run.ready_at
        took = None if state not in FINAL or run.since_at is None else now - run.since_at
        times = RunTimes(
            int(run.started_at // 60),
            bucket_of(ran),
            bucket_of(waited),
            None if took is None else bucket_of(took),
            reason if state in (State.RETRYING, State.DEAD) else None,
        )
        sums = self.of((run.queue, run.function, run.upstream, run.tenant), times)
        sums.run_seconds += ran
        sums.wait_seconds += waited
        sums.total_seconds += took or 0.0
        sums.dead += state is State.DEAD
        sums.cancelled += state is State.CANCELLED
        sums.retried += state is State.RETRYING
        sums.released += state in (State.READY, State.SUSPENDED)

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        """Return the rows to add to the minute of `now`.

        Columns: minute, queue, function, upstream, tenant, dead, cancelled, retried, released, seconds run,
            seconds waited, `now` if a task became final, the minute in which the runs started, the buckets of
            their run times and their waits, seconds from enqueue to end and their bucket, and the reason.
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
                times.started_minute,
                times.ran,
                times.waited,
                None if times.took is None else sums.total_seconds,
                times.took,
                times.reason,
            )
            for (where, times), sums in self._sums.items()
        ]
