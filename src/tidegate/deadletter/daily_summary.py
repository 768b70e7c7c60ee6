"""The summary of the dead tasks of one day, compared with the day before.

The summary names functions, reasons, error classes and frames, but no messages of errors, which may be
private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.deadletter.group_states import OPEN, read_states
from tidegate.deadletter.surges import find_surges
from tidegate.domain.text import counted, one_line
from tidegate.policy.failure_state import FailureState
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow, HistoryRange
from tidegate.store.protocol import Store

DAY_SECONDS = 86_400.0
_UNRESOLVED_DAYS, _KNOWN_DAYS = 7, 35
_MOST_GROUPS = 1_000
_ALL_GROUPS = 100_000
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DeathChange:
    """How many tasks died of one reason or in one function, compared with the day before."""

    name: str
    deaths: int
    day_before: int


@dataclass(frozen=True, slots=True)
class SummaryGroup:
    """A group of failures in a summary."""

    fingerprint: str
    error_class: str
    """The class of the exception; empty if no exception was raised."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    """How many tasks died in the time that the list covers."""


@dataclass(frozen=True, slots=True)
class DailySummary:
    """The tasks that died in 24 hours. Moments are seconds since the epoch."""

    since: float
    until: float
    deaths: int
    day_before: int
    """How many tasks died in the 24 hours before."""
    reasons: tuple[DeathChange, ...]
    functions: tuple[DeathChange, ...]
    surges: tuple[str, ...]
    """A sentence for each function whose deaths surge over the day."""
    new: tuple[SummaryGroup, ...]
    """Groups of failures without a death in the 35 days before."""
    reopened: tuple[SummaryGroup, ...]
    """Resolved groups of which a task has died since."""
    unresolved: tuple[SummaryGroup, ...]
    """Open groups with a death in the last seven days, the most deaths first; 1,000 at most."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.deaths or self.day_before or self.unresolved)

    @property
    def text(self) -> str:
        """The summary in one line for people."""
        return "; ".join(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The summary for a terminal: the total, then a line for each list that is not empty."""
        parts = [f"{counted(self.deaths, 'death')} in 24 h, {self.day_before:,} the day before"]
        for name, changes in (("by reason", self.reasons), ("by function", self.functions)):
            shown = [f"{each.name} {each.deaths} (before: {each.day_before})" for each in changes[:_SHOWN]]
            parts += [f"{name}: {', '.join(shown)}"] if shown else []
        parts += [f"surge: {each}" for each in self.surges[:_SHOWN]]
        for name, groups in (("new", self.new), ("reopened", self.reopened), ("unresolved", self.unresolved)):
            shown = [_name(each) for each in groups[:_SHOWN]]
            parts += [f"{counted(len(groups), 'group')} {name}: {', '.join(shown)}"] if shown else []
        return tuple(map(one_line, parts))


async def read_summary(store: Store, until: float) -> DailySummary:
    """Return the summary of the 24 hours before a moment.

    Args:
        store: Holds the counters.
        until: The end of the 24 hours; usually now, or a recent moment.
    """
    since = until - DAY_SECONDS
    deaths = await store.count_deaths(HistoryRange(since, until), step_minutes=1)
    before = await store.count_deaths(HistoryRange(since - DAY_SECONDS, since), step_minutes=1)
    today = await store.list_failure_groups(HistoryRange(since, until), limit=_MOST_GROUPS)
    known = {
        each.fingerprint
        for each in await store.list_failure_groups(
            HistoryRange(since - _KNOWN_DAYS * DAY_SECONDS, since), limit=_ALL_GROUPS
        )
        if each.first_at < since
    }
    week = await store.list_failure_groups(
        HistoryRange(until - _UNRESOLVED_DAYS * DAY_SECONDS, until), limit=_MOST_GROUPS
    )
    states = await read_states(store)
    return DailySummary(
        since,
        until,
        sum(each.deaths for each in deaths),
        sum(each.deaths for each in before),
        _changes(_by_reason(deaths), _by_reason(before)),
        _changes(_by_function(deaths), _by_function(before)),
        tuple(
            f"{each.key}: {each.surge.why}"
            for each in await find_surges(store, by="function", window=DAY_SECONDS)
            if each.surge.surges
        ),
        _groups(each for each in today if each.fingerprint not in known),
        _groups(each for each in week if states.get(each.fingerprint, OPEN).is_reopened),
        _groups(each for each in week if states.get(each.fingerprint, OPEN).state is FailureState.OPEN),
    )


def _by_reason(rows: Iterable[DeathCountRow]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.reason] += row.deaths
    return counts


def _by_function(rows: Iterable[DeathCountRow]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.function] += row.deaths
    return counts


def _changes(now: Counter[str], before: Counter[str]) -> tuple[DeathChange, ...]:
    names = sorted({*now, *before}, key=lambda name: (-now[name], -before[name], name))
    return tuple(DeathChange(name, now[name], before[name]) for name in names)


def _groups(rows: Iterable[FailureGroupRow]) -> tuple[SummaryGroup, ...]:
    return tuple(SummaryGroup(row.fingerprint, row.error_class, row.frame, row.deaths) for row in rows)


def _name(group: SummaryGroup) -> str:
    what = group.error_class or "no exception"
    place = f" in {group.frame}" if group.frame else ""
    return f"{group.fingerprint[:8]} {what}{place} ({group.deaths})"
