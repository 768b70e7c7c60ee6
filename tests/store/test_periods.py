"""Which rows of the history a statistic reads: every minute once, from rows that are kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.store.common.periods import (
    DAY_SPAN,
    DAY_STEP,
    HOUR_SPAN,
    HOUR_STEP,
    TIMES_STEP,
    WHOLE_TIME,
    Minutes,
    compaction_limit,
    rows_of,
)
from tidegate.store.history_rows import HistoryRange

NOW = 1_800_003_600.0
PRESENT = int(NOW // 60)

RANGES = st.tuples(st.integers(0, 60 * DAY_SPAN), st.integers(1, 60 * DAY_SPAN)).map(
    lambda each: (PRESENT - each[0], PRESENT - each[0] + each[1])
)
STEPS = st.sampled_from([1, HOUR_SPAN, DAY_SPAN, WHOLE_TIME])
KEPT = st.sampled_from([HOUR_STEP, TIMES_STEP])


@settings(deadline=None)
@given(minutes=RANGES, step=STEPS, kept=KEPT)
def test_every_minute_is_read_once_from_rows_that_are_kept(minutes, step, kept):
    first, after = minutes
    oldest_minutes, oldest_hours = compaction_limit(NOW, kept), compaction_limit(NOW, DAY_STEP)
    found = rows_of(HistoryRange(first * 60.0, after * 60.0), step, NOW, oldest_minutes=oldest_minutes)
    read = sorted((begin, part.span) for part in found for begin in range(part.first, part.after, part.span))
    end = read[0][0]
    for begin, span in read:
        assert begin == end, "no gap, and nothing twice"
        assert begin % span == 0
        assert span >= DAY_SPAN or begin >= oldest_hours
        assert span >= HOUR_SPAN or begin >= oldest_minutes
        end = begin + span
    shortest_at_start = DAY_SPAN if first < oldest_hours else HOUR_SPAN if first < oldest_minutes else 1
    assert read[0][0] == first - first % shortest_at_start
    shortest_at_end = DAY_SPAN if after <= oldest_hours else HOUR_SPAN if after <= oldest_minutes else 1
    assert end == -(-after // shortest_at_end) * shortest_at_end or after >= PRESENT


@settings(deadline=None)
@given(minutes=RANGES, step=STEPS)
def test_no_row_is_longer_than_a_period_unless_no_shorter_one_is_kept(minutes, step):
    which = HistoryRange(minutes[0] * 60.0, minutes[1] * 60.0)
    oldest_minutes, oldest_hours = compaction_limit(NOW, HOUR_STEP), compaction_limit(NOW, DAY_STEP)
    for part in rows_of(which, step, NOW, oldest_minutes=oldest_minutes):
        if part.span == DAY_SPAN:
            assert step % DAY_SPAN == 0 or part.after <= oldest_hours
        elif part.span == HOUR_SPAN:
            assert step % HOUR_SPAN == 0 or part.after <= oldest_minutes


def test_forty_days_by_the_day_until_now_are_forty_one_days_and_no_minute():
    which = HistoryRange(NOW - 40 * DAY_SPAN * 60, NOW)
    (days,) = rows_of(which, DAY_SPAN, NOW, oldest_minutes=compaction_limit(NOW, HOUR_STEP))
    assert days == Minutes(DAY_SPAN, days.first, days.first + 41 * DAY_SPAN)


def test_a_day_by_the_hour_reads_minutes_only_before_its_first_full_hour():
    now = NOW + 1_800.0
    which = HistoryRange(now - DAY_SPAN * 60, now)
    found = rows_of(which, HOUR_SPAN, now, oldest_minutes=compaction_limit(now, HOUR_STEP))
    assert [(part.span, part.after - part.first) for part in found] == [(1, 30), (HOUR_SPAN, DAY_SPAN)]
