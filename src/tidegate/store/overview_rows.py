"""The values that one read of the whole store returns, from one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.limits.pauses import Pause
from tidegate.policy.work import Work
from tidegate.store.controls import ControlRow
from tidegate.store.history_rows import TotalCounts
from tidegate.store.rows import DeadLetterRow, QueueStats
from tidegate.store.schedule_rows import ScheduleRow
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow
from tidegate.store.worker_rows import WorkerRow


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """Queues, upstreams and workers, and what people changed."""

    at: float
    """By the store's clock."""
    queues: Sequence[QueueStats]
    """The queues, with drain estimates. Ready tasks that no live worker can run count as blocked."""
    upstreams: Sequence[UpstreamRow]
    workers: Sequence[WorkerRow]
    pauses: Sequence[Pause] = ()
    """The paused queues and functions."""
    controls: Sequence[ControlRow] = ()
    """The orders of operators to workers."""


@dataclass(frozen=True, slots=True)
class TopRow:
    """What a live view shows."""

    overview: OverviewRow
    failures: Sequence[DeadLetterRow]
    """The newest dead letters."""


@dataclass(frozen=True, slots=True)
class MonitoringRow:
    """The data from which metrics are computed."""

    overview: OverviewRow
    budgets: Sequence[RetryBudgetRow]
    schedules: Sequence[ScheduleRow]
    last_successes: Mapping[str, float]
    """When the latest successful task of each schedule ended."""
    totals: TotalCounts
    work: Work
    """The tasks that workers run or could run, for autoscaling."""
    open_doubts: int = 0
    """How many calls are in doubt."""
