"""Counters by period, queue, function or upstream for people, with estimated percentiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.domain.durations import estimate_percentile
from tidegate.operations.history import By, StatisticsFilters, read_statistics
from tidegate.store.history_rows import Counts, StatisticsRow
from tidegate.store.protocol import Store

_KEYS: dict[By, Callable[[StatisticsRow], Any]] = {
    "time": lambda row: row.at,
    "queue": lambda row: row.queue,
    "function": lambda row: row.function,
    "upstream": lambda row: row.upstream,
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Counters with estimated percentiles of run and wait times, in seconds; None without runs."""

    key: Any
    """The start of the period, or the name of the queue, function or upstream."""
    counts: Counts
    run_p50: float | None
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None


async def read_summaries(store: Store, filters: StatisticsFilters, *, by: By, step: str) -> list[Summary]:
    """Return the sums by one key: periods in order, or names with the most finished tasks first.

    Raises:
        OptionError: A value is invalid, or the result would have too many periods.
    """
    rows = await read_statistics(store, filters, step=step, by=by)
    found = sorted((summary(_KEYS[by](row), row) for row in rows), key=lambda each: each.key)
    if by != "time":
        found.sort(key=lambda each: -each.counts.succeeded - each.counts.dead)
    return found


def summary(key: Any, row: StatisticsRow) -> Summary:
    """Return the counters of a row with their percentiles."""
    return Summary(
        key,
        row.counts,
        estimate_percentile(row.run_times, 0.5),
        estimate_percentile(row.run_times, 0.95),
        estimate_percentile(row.wait_times, 0.5),
        estimate_percentile(row.wait_times, 0.95),
    )


def period_fields(row: StatisticsRow) -> dict[str, Any]:
    """Return the fields of one channel's counters that people see, without the moment of the period."""
    sums = summary(row.at, row)
    return {
        "queue": row.queue,
        "function": row.function,
        "upstream": row.upstream or None,
        "run_p50": sums.run_p50,
        "run_p95": sums.run_p95,
        "wait_p50": sums.wait_p50,
        "wait_p95": sums.wait_p95,
        **asdict(row.counts),
    }
