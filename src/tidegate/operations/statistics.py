"""Sum counters of channels over periods, queues, functions or upstreams, with estimated percentiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidegate.domain.durations import estimate_percentile
from tidegate.store.history_rows import Counts, StatisticsRow

By = Literal["time", "queue", "function", "upstream"]
"""What one line of a summary is about."""

_KEYS: dict[str, Callable[[StatisticsRow], Any]] = {
    "time": lambda row: row.at,
    "queue": lambda row: row.queue,
    "function": lambda row: row.function,
    "upstream": lambda row: row.upstream,
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Counters with estimated percentiles of run and wait times, in seconds; None without runs."""

    key: Any
    """When the period begins, or the name of the queue, function or upstream."""
    counts: Counts
    run_p50: float | None
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None


def summarise(rows: Iterable[StatisticsRow], by: str) -> list[Summary]:
    """Return the sums by one key: periods in their order, names with the most finished tasks first."""
    groups: dict[Any, list[StatisticsRow]] = {}
    for row in rows:
        groups.setdefault(_KEYS[by](row), []).append(row)
    found = [summary(key, group) for key, group in sorted(groups.items())]
    if by != "time":
        found.sort(key=lambda each: -each.counts.succeeded - each.counts.dead)
    return found


def summary(key: Any, rows: Iterable[StatisticsRow]) -> Summary:
    """Return the sums of these rows."""
    rows = list(rows)
    sums: Counter[str] = Counter()
    runs: Counter[int] = Counter()
    waits: Counter[int] = Counter()
    for row in rows:
        sums.update(asdict(row.counts))
        runs.update(row.run_times)
        waits.update(row.wait_times)
    return Summary(
        key,
        Counts(**sums),
        estimate_percentile(runs, 0.5),
        estimate_percentile(runs, 0.95),
        estimate_percentile(waits, 0.5),
        estimate_percentile(waits, 0.95),
    )


def period_fields(row: StatisticsRow) -> dict[str, Any]:
    """Return the fields that people see of one channel's counters in one period, without its moment."""
    sums = summary(row.at, [row])
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
