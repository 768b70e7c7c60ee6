"""Reads the store once for a scrape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.monitor.scaling import decide_for_pools
from tidegate.operations.overview import Overview, read_overview
from tidegate.policy.autoscale import ScalingDecision
from tidegate.store.history_rows import TotalCounts
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import ScheduleRow
from tidegate.store.upstream_rows import RetryBudgetRow
from tidegate.worker.settings import Pool

MOST_SCHEDULES = 1_000
"""Schedules beyond this many, by name, have no metrics."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scrape reads."""

    overview: Overview
    budgets: Sequence[RetryBudgetRow]
    schedules: Sequence[ScheduleRow]
    last_successes: Mapping[str, float]
    """When the latest task that succeeded ended, by schedule."""
    totals: TotalCounts
    scaling: Mapping[str, ScalingDecision]
    """By pool."""


async def read_metrics(store: Store, pools: Sequence[Pool] = ()) -> Reading:
    """Read what the metrics are computed from. Nothing here scans what is finished.

    Args:
        store: The store.
        pools: The pools whose desired workers are computed.
    """
    return Reading(
        await read_overview(store),
        await store.list_retry_budgets(),
        await store.list_schedules(limit=MOST_SCHEDULES),
        await store.list_last_successes(),
        await store.get_totals(),
        await decide_for_pools(store, pools),
    )
