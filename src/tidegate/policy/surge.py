"""Decides whether deaths surge: in count, and in share of the tasks that ended.

The method is that of Farrington, Andrews, Beale and Catchpole, "A statistical algorithm for the early
detection of outbreaks of infectious disease" (Journal of the Royal Statistical Society A 159, 1996, pages
547 to 563), without its trend, which 14 days are too short for:

1. The baseline is the same hours of up to 14 earlier days, because traffic follows the clock. A store younger
   than three days is compared with the 24 hours before instead.
2. The expected number is the baseline's rate (deaths per minute, or deaths per ended task) times what the
   present period has of minutes or ended tasks. The expected number is never below one, so that a single
   death after a quiet week has no huge factor.
3. With five or more earlier periods the one with the highest rate is left out, so that yesterday's incident
   does not hide today's.
4. The limit is an upper bound of that number, computed on its 2/3 power, which makes counts nearly normal.
   The limit is higher where the earlier periods differ more than chance explains (the dispersion), and where
   they are few.
5. The limit is never below five deaths, and never below twice the expected number.

The share counts the tasks that succeeded or died. Cancelled tasks do not count: a person cancelled them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.text import counted, format_duration

DAYS = 14
"""Earlier days that are compared."""
LEAST_DAYS = 3
"""With fewer days, the hours before are compared instead."""
HOURS = 24
"""How many hours before the period are compared then."""
LEAST_DEATHS = 5
"""Fewer deaths are never a surge. The paper has the same number."""
LEAST_FACTOR = 2.0
"""A rise by a smaller factor is no surge, even if counts are so large that chance does not explain it."""
BOUND = 3.29
"""Standard deviations of the limit: chance alone passes it once in 2,000 looks."""
_PERIODS_TO_TRIM = 5
_HOUR, _DAY = 60, 1440


class Window(NamedTuple):
    """A range of minutes since the epoch."""

    first: int
    end: int
    """The minute after the last."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """How many tasks died, and how many ended, in one period."""

    minutes: float
    deaths: int
    ended: int
    """Tasks that succeeded or died, in the function or queue that the deaths belong to."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The earlier periods with which the present one is compared."""

    windows: tuple[Window, ...]
    """The latest first."""
    name: str
    """A text such as "the same hours of 7 earlier days"; empty if there is no earlier period."""


@dataclass(frozen=True, slots=True)
class SurgeComparison:
    """One number of the present period against its baseline."""

    surges: bool
    now: float
    """Deaths, or deaths per ended task."""
    expected: float | None = None
    """The expected value of `now` by the baseline; None without a baseline."""
    limit: float | None = None
    """A surge begins here; None without a baseline. A share cannot reach a limit above 1."""
    factor: float | None = None
    """`now` divided by `expected`."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Surge:
    """Whether deaths surge, with the numbers."""

    count: SurgeComparison
    share: SurgeComparison

    @property
    def surges(self) -> bool:
        """Whether deaths surge in count, in share, or in both."""
        return self.count.surges or self.share.surges

    @property
    def why(self) -> str:
        """A sentence for people that names both numbers."""
        return f"{self.count.why}; {self.share.why}"


def baseline_windows(now: int, minutes: int, known_since: int | None) -> Baseline:
    """Return the earlier periods for the `minutes` before the minute `now`.

    Args:
        now: The minute that has just begun. The end does not belong to the period.
        minutes: Length of the period.
        known_since: The first minute of which the store has counters. None if it has none.
    """
    if known_since is None:
        return Baseline((), "")
    start = now - minutes
    first, end = start - start % _HOUR, now + -now % _HOUR
    # A period longer than a day must not overlap the one it is compared with.
    apart = -(-(end - first) // _DAY)
    days = [
        Window(first - day * _DAY, end - day * _DAY)
        for day in range(apart, DAYS + 1, apart)
        if first - day * _DAY >= known_since
    ]
    if len(days) >= LEAST_DAYS:
        return Baseline(tuple(days), f"the same hours of {counted(len(days), 'earlier day')}")
    hours = [
        Window(first - (hour + 1) * _HOUR, first - hour * _HOUR)
        for hour in range(HOURS)
        if first - (hour + 1) * _HOUR >= known_since
    ]
    if not hours:
        return Baseline((), "")
    return Baseline(tuple(hours), "the hour before" if len(hours) == 1 else f"the {len(hours)} hours before")


def find_surge(now: Deaths, earlier: Sequence[Deaths], baseline: str) -> Surge:
    """Compare a period with the earlier periods of its baseline.

    Args:
        now: The present period.
        earlier: The earlier periods, in any order. A period without deaths counts too.
        baseline: Name of the baseline, for the sentences.
    """
    ended = max(now.ended, now.deaths)
    count = _expect(now.minutes, [(each.deaths, each.minutes) for each in earlier])
    share = _expect(ended, [(each.deaths, max(each.ended, each.deaths)) for each in earlier])
    happened = f"{counted(now.deaths, 'death')} in {format_duration(now.minutes * 60.0)}"
    died = f"{_percent(now.deaths / ended)} of {counted(ended, 'ended task')}" if ended else "no task ended"
    return Surge(
        _compare(now.deaths, 1.0, count, happened, baseline, _number),
        _compare(now.deaths, ended, share, died, "", _percent),
    )


class _Expectation(NamedTuple):
    deaths: float
    limit: int


def _expect(size: float, earlier: Sequence[tuple[int, float]]) -> _Expectation | None:
    """Return the expected deaths and their limit, from pairs of deaths and size (minutes or ended tasks)."""
    known = sorted((pair for pair in earlier if pair[1] > 0), key=lambda pair: (pair[0] / pair[1], pair))
    if len(known) >= _PERIODS_TO_TRIM:
        known.pop()
    total = sum(each for _, each in known)
    if total <= 0 or size <= 0:
        return None
    rate = sum(deaths for deaths, _ in known) / total
    expected = max(1.0, rate * size)
    variance = _dispersion(known, rate) * (1.0 + size / total)
    bound = expected * (1.0 + BOUND * 2.0 / 3.0 * math.sqrt(variance / expected)) ** 1.5
    return _Expectation(expected, math.ceil(max(bound, LEAST_DEATHS, LEAST_FACTOR * expected)))


def _dispersion(known: Sequence[tuple[int, float]], rate: float) -> float:
    """Return by how much these periods vary more than chance alone explains; 1 for no more."""
    if rate <= 0 or len(known) < 2:
        return 1.0
    squares = sum((deaths - rate * each) ** 2 / (rate * each) for deaths, each in known)
    return max(1.0, squares / (len(known) - 1))


def _compare(
    deaths: int,
    unit: float,
    expectation: _Expectation | None,
    happened: str,
    baseline: str,
    shown: Callable[[float], str],
) -> SurgeComparison:
    """Compare deaths with what was expected, both divided by `unit` for the result."""
    now = deaths / unit if unit else 0.0
    if expectation is None:
        return SurgeComparison(False, now, why=f"{happened}, with nothing earlier to compare")
    expected, limit = expectation.deaths / unit, expectation.limit / unit
    factor = deaths / expectation.deaths
    source = f" from {baseline}" if baseline else ""
    unreachable = shown is _percent and limit > 1.0
    begins = "a surge would begin above 100%" if unreachable else f"a surge begins at {shown(limit)}"
    why = f"{happened}, {shown(expected)} expected{source} (×{_number(factor)}), {begins}"
    return SurgeComparison(deaths >= expectation.limit, now, expected, limit, factor, why)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{share * 100:.{0 if share >= 0.1 or share == 0 else 1}f}%"
