"""What is usual: the run times of the last week, computed once an hour and stored with the passes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from tidegate.alerts.observation import RunTimes
from tidegate.domain.durations import estimate_percentile
from tidegate.store.history_rows import HistoryRange, StatisticsRow
from tidegate.store.protocol import Store

USUAL_SECONDS = 3_600.0
"""How long what was computed is used."""
_WEEK_SECONDS = 7 * 86_400.0
_ONE_PERIOD_MINUTES = 10_080
"""Longer than any range that is read here, so that a channel has two rows at most."""

Times = dict[int, int]
"""Number of runs by bucket of their run time."""


class Usual(msgspec.Struct, frozen=True):
    """What is usual, as it is stored."""

    functions: dict[str, Times] = {}
    upstreams: dict[str, Times] = {}

    def to_json(self) -> str:
        """Return it as it is stored."""
        return msgspec.json.encode(self).decode()


def usual_from_json(text: str) -> Usual | None:
    """Return what was stored; None if there is nothing, or nothing that this version can read."""
    try:
        return msgspec.json.decode(text, type=Usual) if text else None
    except msgspec.DecodeError:
        return None


async def read_usual(store: Store, now: float) -> Usual:
    """Return the run times of the week that ended an hour ago. The last hour is what is compared with it."""
    rows = await read_counts(store, now - USUAL_SECONDS - _WEEK_SECONDS, now - USUAL_SECONDS)
    return Usual(times_by_function(rows), times_by_upstream(rows))


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
    """Return the p95 of both."""
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
