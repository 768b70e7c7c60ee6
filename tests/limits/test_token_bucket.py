"""Pacing: no window exceeds its limit plus the catch-up, and no quota is lost under load."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.spec import Window
from tidegate.limits import token_bucket
from tidegate.limits.values import TokenBucket

START = 1_800_000_000.0
DAY = 86_400.0
bucket = st.builds(Window, st.just("w"), st.integers(1, 600), st.sampled_from([1.0, 10.0, 60.0]))
gaps = st.lists(st.floats(0, 5), min_size=1, max_size=200)


def starts(window: Window, gaps: list[float], bucket: TokenBucket | None = None) -> list[float]:
    """The moments at which requests start that arrive with these gaps and wait for their slots."""
    bucket, now, found = bucket or TokenBucket(), START, []
    for gap in gaps:
        now += gap
        at = token_bucket.next_slot_at(window, bucket, now)
        bucket = token_bucket.charge(window, bucket, at)
        found.append(at)
    return found


def most_in_any(moments: list[float], seconds: float) -> int:
    moments = sorted(moments)
    return max(sum(1 for other in moments if at <= other < at + seconds - 1e-6) for at in moments)


@given(bucket, gaps)
def test_no_period_of_a_windows_length_has_more_requests_than_the_limit_plus_half_a_second(window, gaps):
    stated = math.floor(token_bucket.CATCH_UP_SECONDS / token_bucket.slot_interval(window))
    assert most_in_any(starts(window, gaps), window.seconds) <= window.amount + stated


@given(bucket, gaps)
def test_a_slot_is_never_before_the_request(window, gaps):
    moment = START
    for gap, at in zip(gaps, starts(window, gaps), strict=True):
        moment += gap
        assert at >= moment


def test_a_backlog_uses_the_whole_limit():
    minute = Window("w", 600, 60.0)
    moments = starts(minute, [0.0] * 6_000)
    assert moments[-1] - START <= 10 * 60


def test_an_idle_hour_saves_up_only_the_catch_up_slots():
    minute = Window("w", 60, 60.0)
    moments = starts(minute, [0.0] * 60 + [3_600.0] + [0.0] * 10)
    after = [at for at in moments if at >= START + 3_600]
    assert most_in_any(after, 1.0) == 1


@given(st.integers(1, 50), st.lists(st.floats(0, 30_000), min_size=1, max_size=100))
def test_a_fixed_day_has_no_more_requests_than_its_limit_even_if_the_providers_clock_differs(amount, gaps):
    day = Window("requests_per_day", amount, DAY, is_fixed=True)
    moments = starts(day, gaps)
    for skew in (-59.0, 0.0, 59.0):
        by_day: dict[int, int] = {}
        for at in moments:
            by_day[math.floor((at + skew) / DAY)] = by_day.get(math.floor((at + skew) / DAY), 0) + 1
        assert max(by_day.values()) <= amount


def test_an_exhausted_day_reopens_a_guard_time_after_midnight():
    day = Window("requests_per_day", 1, DAY, is_fixed=True)
    first, second = starts(day, [10.0, 10.0])
    midnight = math.ceil(first / DAY) * DAY
    assert second == midnight + token_bucket.guard_seconds(day) == midnight + 60.0


def test_a_request_must_wait_for_the_longest_of_its_windows():
    minute, day = Window("requests_per_minute", 60, 60.0), Window("requests_per_day", 1, DAY, is_fixed=True)
    buckets = token_bucket.charge_all([minute, day], {}, START)
    assert token_bucket.next_slot_in_all([minute], buckets, START) == START + 1.0
    assert token_bucket.next_slot_in_all([minute, day], buckets, START) > START + 3_600


def test_at_a_tenth_of_the_rate_a_request_takes_ten_slots():
    minute = Window("w", 600, 60.0)
    bucket = token_bucket.charge(
        minute, token_bucket.drop_burst(minute, TokenBucket(), START), START, stretch=10.0
    )
    assert token_bucket.next_slot_at(minute, bucket, START) == START + 1.0
