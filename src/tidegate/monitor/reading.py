"""Reads the store once for a scrape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.operations.overview import Overview, read_overview
from tidegate.store.history_rows import TotalCounts
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import ScheduleRow
from tidegate.store.upstream_rows import RetryBudgetRow


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scrape reads."""

    overview: Overview
    budgets: Sequence[RetryBudgetRow]
    schedules: Sequence[ScheduleRow]
    totals: TotalCounts


async def read_metrics(store: Store) -> Reading:
    """Read what the metrics are computed from. Nothing here scans what is finished."""
    return Reading(
        await read_overview(store),
        await store.list_retry_budgets(),
        await store.list_schedules(),
        await store.get_totals(),
    )
