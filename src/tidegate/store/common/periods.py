"""How long history is kept by the minute, the hour and the day, and which rows a statistic reads."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.store.history_rows import HistoryRange

MINUTE_SPAN, HOUR_SPAN, DAY_SPAN = 1, 60, 1440
WHOLE_TIME = 1_000_000 * DAY_SPAN
"""Minutes of a period that has all of the time, and begins at 0."""
MINUTES_KEPT = 2 * DAY_SPAN
"""Age in minutes from which history is kept by the hour."""
TIMES_KEPT = 6 * HOUR_SPAN
"""The same for run and wait times, which have several rows for each row of counts."""
HOURS_KEPT = 35 * DAY_SPAN
"""Age in minutes from which it is kept by the day."""
DAYS_KEPT = 400 * DAY_SPAN
"""Age in minutes from which it is deleted: a year can be compared with the one before."""


class CompactionStep(NamedTuple):
    """Rows of one span become rows of a longer one."""

    span: int
    longer: int
    age: int
    """Minutes after which this is done."""


TIMES_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, TIMES_KEPT)
HOUR_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, MINUTES_KEPT)
DAY_STEP = CompactionStep(HOUR_SPAN, DAY_SPAN, HOURS_KEPT)
DEATH_STEPS = (CompactionStep(0, MINUTE_SPAN, 2), HOUR_STEP)
"""Deaths are summed by the minute when their minute is over, and then by the hour."""


def compaction_limit(now: float, step: CompactionStep) -> int:
    """Return the minute before which rows are summed, which is the first of a longer period."""
    minute = int(now // 60) - step.age
    return minute - minute % step.longer


class Minutes(NamedTuple):
    """Rows of one span. They count if they begin in this time."""

    span: int
    """Minutes that each row sums: 1, 60 or 1440."""
    first: int
    after: int
    """The minute after the last."""


def minutes_of(which: HistoryRange) -> tuple[int, int]:
    """Return the first minute of a range, and the one after its last."""
    return int(which.since // 60), int(-(-which.until // 60))


def days_of(first: int, after: int, step: int, now: float) -> tuple[int, int]:
    """Return the first day, and the one after the last, that may be read as whole days; equal for none.

    Only days are kept of old times. Of other times, a day may be read whole if it is in one period and
    entirely in the range. A range that ends now has all of today.

    Args:
        first: The first minute of the range.
        after: The minute after its last.
        step: The minutes of a period.
        now: The store's present time.
    """
    oldest_hours = compaction_limit(now, DAY_STEP)
    begin = first - first % DAY_SPAN if first < oldest_hours else _next(first, DAY_SPAN)
    end = _end(after, DAY_SPAN, now) if step % DAY_SPAN == 0 else oldest_hours
    if after <= oldest_hours:
        end = _next(after, DAY_SPAN)
    return (begin, end) if begin < end else (after, after)


def rows_of(which: HistoryRange, step: int, now: float, *, oldest_minutes: int) -> list[Minutes]:
    """Return which rows have the counters of a range, none twice.

    A part of an hour or a day of which no shorter rows are kept counts as a whole.

    Args:
        which: The range.
        step: The minutes of a period.
        now: The store's present time.
        oldest_minutes: The minute, the first of an hour, since when there are rows by the minute.
    """
    first, after = minutes_of(which)
    if first < oldest_minutes:
        first -= first % HOUR_SPAN
    days = days_of(first, after, step, now)
    found = [Minutes(DAY_SPAN, *days)]
    before = (first, min(days[0], after)) if days[0] < days[1] else (first, after)
    for begin, end in (before, (max(first, days[1]), after)):
        found += _hours_and_minutes(begin, end, step, now, oldest_minutes)
    return [each for each in found if each.first < each.after]


def _hours_and_minutes(first: int, after: int, step: int, now: float, oldest_minutes: int) -> list[Minutes]:
    if first >= after:
        return []
    begin = first if first < oldest_minutes else _next(first, HOUR_SPAN)
    end = _end(after, HOUR_SPAN, now) if step % HOUR_SPAN == 0 else min(after, oldest_minutes)
    if after <= oldest_minutes:
        end = after
    if begin >= end:
        return [Minutes(1, first, after)]
    return [Minutes(1, first, begin), Minutes(HOUR_SPAN, begin, end), Minutes(1, end, after)]


def _next(minute: int, span: int) -> int:
    """Return the first minute of a span, from this minute on."""
    return -(-minute // span) * span


def _end(after: int, span: int, now: float) -> int:
    """Return the end of the last span that is entirely in the range. Nothing is counted after now."""
    return _next(after, span) if after * 60.0 >= now else after - after % span
