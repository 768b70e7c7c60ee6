"""How long history is kept by the minute, the hour and the day, and which rows a statistic reads."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.store.history_rows import HistoryRange

MINUTE_SPAN, HOUR_SPAN, DAY_SPAN = 1, 60, 1440
WHOLE_TIME = 1_000_000 * DAY_SPAN
"""Length in minutes of a single period for all of the time. It begins at 0."""
MINUTES_KEPT = 2 * DAY_SPAN
"""Age in minutes from which history is kept by the hour."""
TIMES_KEPT = 6 * HOUR_SPAN
"""The same age for run and wait times, which have several rows for each row of counts."""
HOURS_KEPT = 35 * DAY_SPAN
"""Age in minutes from which history is kept by the day."""
DAYS_KEPT = 400 * DAY_SPAN
"""Age in minutes from which history is deleted. The retention is long enough to compare a year with the year
before."""


class CompactionStep(NamedTuple):
    """Rows of one span become rows of a longer span."""

    span: int
    longer: int
    age: int
    """Age of the rows in minutes at which this is done."""


TIMES_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, TIMES_KEPT)
HOUR_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, MINUTES_KEPT)
DAY_STEP = CompactionStep(HOUR_SPAN, DAY_SPAN, HOURS_KEPT)
DEATH_STEPS = (CompactionStep(0, MINUTE_SPAN, 2), HOUR_STEP)
"""Deaths are summed by the minute when their minute is over, and then by the hour."""


def compaction_limit(now: float, step: CompactionStep) -> int:
    """Return the minute before which rows are summed. A period of the longer span begins at it."""
    minute = int(now // 60) - step.age
    return minute - minute % step.longer


class Minutes(NamedTuple):
    """A range of rows of one span: those that begin in these minutes."""

    span: int
    """Minutes that each row sums: 1, 60 or 1440."""
    first: int
    after: int
    """The minute after the last minute."""


def minutes_of(which: HistoryRange) -> tuple[int, int]:
    """Return the first minute of a range, and the minute after its last."""
    return int(which.since // 60), int(-(-which.until // 60))


def days_of(first: int, after: int, step: int, now: float) -> tuple[int, int]:
    """Return the first minute of the days that may be read whole, and the minute after them.

    The two are equal if there are no such days.

    History older than 35 days is kept only by the day. A younger day may be read whole if it lies in one
    period and entirely in the range. Today lies entirely in a range that ends now.

    Args:
        first: The first minute of the range.
        after: The minute after the last minute of the range.
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
    """Return the ranges of rows that together have the counters of a range, each counter once.

    If the range covers a part of an hour or day for which no shorter rows are kept, the whole hour or day
    counts.

    Args:
        which: The range.
        step: The minutes of a period.
        now: The store's present time.
        oldest_minutes: The first minute for which there are rows by the minute. It begins an hour.
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
    """Return the start of the first span that begins at this minute or later."""
    return -(-minute // span) * span


def _end(after: int, span: int, now: float) -> int:
    """Return the end of the last span that lies entirely in the range.

    A span that has not ended counts if it contains `now`, since it has no later counts.
    """
    return _next(after, span) if after * 60.0 >= now else after - after % span
