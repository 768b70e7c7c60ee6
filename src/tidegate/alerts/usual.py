"""The usual values: run times of the last week, and deaths at the same hours of earlier days.

They are computed once an hour and stored with the passes, so that a pass reads one row instead of a week of
counters.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from tidegate.alerts.observation import RunTimes
from tidegate.domain.durations import estimate_percentile
from tidegate.policy.surge import Deaths, Window, baseline_windows, find_surge
from tidegate.store.history_rows import HistoryRange, StatisticsRow
from tidegate.store.protocol import Store

HOUR_SECONDS = 3_600.0
"""Computed values are used until the hour in which they were computed is over."""
_WEEK_SECONDS = 7 * 86_400.0
_PERIOD_MINUTES = 10
_ONE_PERIOD_MINUTES = 10_080
"""A step longer than any range that is read here, so that each channel has two rows at most."""

Times = dict[int, int]
"""The number of runs in each bucket of run times."""


class Usual(msgspec.Struct, frozen=True):
    """The usual values, as they are stored."""

    functions: dict[str, Times] = {}
    upstreams: dict[str, Times] = {}
    periods: list[int] = []
    """The lengths, in minutes, of the earlier periods with which deaths are compared."""
    periods_name: str = ""
    deaths: dict[str, list[tuple[int, int]]] = {}
    """For each queue and each of these periods, how many tasks died and how many ended."""

    def to_json(self) -> str:
        """Return the values as they are stored."""
        return msgspec.json.encode(self).decode()


def usual_from_json(text: str) -> Usual | None:
    """Return the stored values; None if there are none, or this version cannot read them."""
    try:
        return msgspec.json.decode(text, type=Usual) if text else None
    except msgspec.DecodeError:
        return None


async def read_usual(store: Store, now: float, muted: Collection[str]) -> Usual:
    """Return the run times of the week that ended an hour ago, and the deaths of earlier periods.

    Deaths with a fingerprint in `muted` are left out, as they are from those that are compared with them.
    """
    rows = await read_counts(store, now - HOUR_SECONDS - _WEEK_SECONDS, now - HOUR_SECONDS)
    minute = int(now // 60)
    baseline = baseline_windows(minute, _PERIOD_MINUTES, await store.counted_since())
    return Usual(
        times_by_function(rows),
        times_by_upstream(rows),
        [window.end - window.first for window in baseline.windows],
        baseline.name,
        await _read_deaths(store, baseline.windows, muted) if baseline.windows else {},
    )


def is_current(computed_at: float | None, now: float) -> bool:
    """Return whether values computed at that time are still used: in the same hour."""
    return computed_at is not None and computed_at // HOUR_SECONDS == now // HOUR_SECONDS


async def _read_deaths(
    store: Store, windows: Sequence[Window], muted: Collection[str]
) -> dict[str, list[tuple[int, int]]]:
    counts = await store.count_windows(windows)
    died: dict[str, Counter[int]] = defaultdict(Counter)
    ended: dict[str, Counter[int]] = defaultdict(Counter)
    for row in counts.ended:
        ended[row.queue][row.window] += row.ended
    for each in counts.deaths:
        if each.fingerprint in muted:
            ended[each.queue][each.window] -= each.deaths
        else:
            died[each.queue][each.window] += each.deaths
    return {
        queue: [(died[queue][number], max(0, ended[queue][number])) for number in range(len(windows))]
        for queue in sorted({*died, *ended})
    }


def surge_of(usual: Usual, queue: str, *, minutes: float, deaths: int, ended: int) -> tuple[float, str]:
    """Return how many deaths of a queue are still no surge, by the usual values, and why; 0 if unknown.

    In a surge both the count of deaths and their share of the ended tasks are high: twice the traffic with
    twice the deaths is no surge. The share is ignored if so few tasks ended that no share could surge.
    """
    if not usual.periods:
        return 0.0, ""
    earlier = usual.deaths.get(queue) or [(0, 0)] * len(usual.periods)
    surge = find_surge(
        Deaths(minutes, deaths, ended),
        [Deaths(span, *counts) for span, counts in zip(usual.periods, earlier, strict=True)],
        usual.periods_name,
    )
    limits = [surge.count.limit or 0.0]
    if surge.share.limit is not None and surge.share.limit <= 1.0:
        limits.append(math.ceil(surge.share.limit * max(ended, deaths)))
    return max(0.0, max(limits) - 1.0), surge.count.why


async def read_counts(store: Store, since: float, until: float) -> list[StatisticsRow]:
    """Return the counters of each channel in a range of at most a week, in one or two rows."""
    return await store.get_statistics(HistoryRange(since, until), step_minutes=_ONE_PERIOD_MINUTES)


def times_by_function(rows: Iterable[StatisticsRow]) -> dict[str, Times]:
    """Return the run times of each function."""
    return _sums((row.function, row.run_times) for row in rows)


def times_by_upstream(rows: Iterable[StatisticsRow]) -> dict[str, Times]:
    """Return the run times of the tasks of each upstream."""
    return _sums((row.upstream, row.run_times) for row in rows if row.upstream)


def compare_times(now: Times, usual: Times) -> RunTimes:
    """Return the p95 run times of both periods."""
    return RunTimes(
        sum(now.values()),
        estimate_percentile(now, 0.95),
        sum(usual.values()),
        estimate_percentile(usual, 0.95),
    )


def _sums(named: Iterable[tuple[str, Mapping[int, int]]]) -> dict[str, Times]:
    sums: dict[str, Counter[int]] = defaultdict(Counter)
    for name, times in named:
        sums[name].update(times)
    return {name: dict(times) for name, times in sums.items() if times}
