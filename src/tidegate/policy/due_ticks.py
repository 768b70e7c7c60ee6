"""Decide which due ticks of a schedule are fired, queued, skipped or missed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.domain.schedule import CatchUp, Overlap, ScheduleRule, TickOutcome, TickReason
from tidegate.policy.ticks import count_ticks, latest_ticks, next_tick, ticks_after

ON_TIME_SECONDS = 15.0
"""A tick that is decided this soon after its moment fires as usual. After that it counts as missed.

This gives another process time to take over from one that died, and is less than the shortest step of
cron."""
MOST_COUNTED = 1_000
"""A record of missed ticks counts at most this many: each one that is counted costs a step of cron."""


@dataclass(frozen=True, slots=True)
class DecidedTick:
    """The decision about one tick, or about several missed ticks."""

    at: float
    """The planned moment; for several ticks, that of the first."""
    until_at: float
    """For several ticks, the planned moment of the last; for one tick, the same as `at`."""
    ticks: int
    """How many ticks this stands for, at most `MOST_COUNTED`."""
    outcome: TickOutcome
    reason: str = ""
    """A value of `TickReason`; empty for a tick that fires in time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about the due ticks of a schedule."""

    ticks: tuple[DecidedTick, ...]
    """The decided ticks, in order, without ticks that were queued before and stay queued."""
    next_at: float | None
    """The first tick that is not due yet; None if there is none."""


def decide_due_ticks(
    rule: ScheduleRule,
    next_at: float | None,
    now: float,
    *,
    is_busy: bool,
    queued: Sequence[float] = (),
) -> Decision:
    """Decide about all ticks that are due.

    Args:
        rule: The schedule's rule.
        next_at: The schedule's first tick that is not decided yet; None if it has none.
        now: The present moment by the store's clock.
        is_busy: Whether a task of an earlier tick is not final.
        queued: The ticks that wait for such a task, in order.
    """
    if next_at is None or next_at > now:
        missed: list[DecidedTick] = []
        late: list[float] = []
        due: list[float] = []
    else:
        missed, late = _catch_up(rule, next_at, now)
        due = _take(rule, max(next_at, now - ON_TIME_SECONDS), now)
        next_at = next_tick(rule, now)
        if rule.catch_up is CatchUp.ONE and due:
            missed, late = _merge(missed, late), []
    fresh = [*((at, TickReason.LATE.value) for at in late), *((at, "") for at in due)]
    waiting = [(at, TickReason.OVERLAP.value) for at in queued] + fresh
    too_late = [at for at, _ in waiting if _is_too_late(rule, at, now)]
    candidates = [each for each in waiting if each[0] not in too_late]
    decided = [
        *missed,
        *(_one(at, TickOutcome.SKIPPED, TickReason.TOO_LATE) for at in too_late),
        *_apply_overlap(rule, candidates, frozenset(queued), is_busy=is_busy),
    ]
    return Decision(tuple(sorted(decided, key=lambda tick: tick.at)), next_at)


def _is_too_late(rule: ScheduleRule, at: float, now: float) -> bool:
    return rule.not_later_than is not None and now - at > rule.not_later_than


def _take(rule: ScheduleRule, first: float, until: float) -> list[float]:
    """Return all ticks from one moment to another, both included."""
    return list(itertools.takewhile(lambda tick: tick <= until, ticks_after(rule, _just_before(first))))


def _just_before(at: float) -> float:
    """Return a moment before `at` and after any earlier tick: ticks are whole seconds."""
    return at - 0.5


def _catch_up(rule: ScheduleRule, next_at: float, now: float) -> tuple[list[DecidedTick], list[float]]:
    """Return the record of missed ticks, and the missed ticks that fire late, in order."""
    before = now - ON_TIME_SECONDS
    last = _latest(rule, next_at, before)
    if last is None:
        return [], []
    if rule.catch_up is CatchUp.NONE:
        return _missed(rule, next_at, last, TickReason.CATCH_UP), []
    if rule.catch_up is CatchUp.ONE:
        return _missed_before(rule, next_at, last, TickReason.CATCH_UP), [last]
    start = max(next_at, now - rule.catch_up_window)
    kept = latest_ticks(rule, after=_just_before(start), until=last, count=rule.catch_up_limit)
    if not kept:
        return _missed(rule, next_at, last, TickReason.WINDOW), []
    oldest_in_window = next_tick(rule, _just_before(start))
    assert oldest_in_window is not None
    return [
        *_missed_before(rule, next_at, oldest_in_window, TickReason.WINDOW),
        *_missed_before(rule, max(next_at, oldest_in_window), kept[0], TickReason.LIMIT),
    ], kept


def _missed(rule: ScheduleRule, first: float, last: float, reason: TickReason) -> list[DecidedTick]:
    """Return a record of the missed ticks from `first` to `last`."""
    number = count_ticks(rule, after=_just_before(first), until=last, most=MOST_COUNTED)
    return [DecidedTick(first, last, number, TickOutcome.MISSED, reason)] if number else []


def _missed_before(rule: ScheduleRule, first: float, end: float, reason: TickReason) -> list[DecidedTick]:
    """Return a record of the missed ticks from `first` on that are before `end`."""
    last = _latest(rule, first, end)
    return [] if last is None else _missed(rule, first, last, reason)


def _latest(rule: ScheduleRule, first: float, end: float) -> float | None:
    """Return the latest tick from `first` on that is before `end`; None if there is none."""
    found = latest_ticks(rule, after=_just_before(first), until=_just_before(end), count=1)
    return found[0] if found else None


def _merge(missed: Sequence[DecidedTick], late: Sequence[float]) -> list[DecidedTick]:
    """Return a record of missed ticks that also counts the ticks that were to fire late."""
    if not late:
        return list(missed)
    if not missed:
        return [_one(at, TickOutcome.MISSED, TickReason.CATCH_UP) for at in late]
    (record,) = missed
    return [replace(record, until_at=late[-1], ticks=min(MOST_COUNTED, record.ticks + len(late)))]


def _one(at: float, outcome: TickOutcome, reason: str = "") -> DecidedTick:
    return DecidedTick(at, at, 1, outcome, str(reason))


def _apply_overlap(
    rule: ScheduleRule,
    candidates: Iterable[tuple[float, str]],
    queued: Collection[float],
    *,
    is_busy: bool,
) -> list[DecidedTick]:
    """Return the decisions about ticks that may fire, oldest first, considering unfinished earlier tasks."""
    decided = []
    room = rule.most_queued
    for at, reason in candidates:
        if not is_busy or rule.overlap is Overlap.ALLOW:
            decided.append(_one(at, TickOutcome.FIRED, reason))
            is_busy = True
        elif room > 0:
            room -= 1
            if at not in queued:
                decided.append(_one(at, TickOutcome.QUEUED, TickReason.OVERLAP))
        else:
            decided.append(_one(at, TickOutcome.SKIPPED, TickReason.OVERLAP))
    return decided
