"""The limits of the simulated provider, on a clock that the test moves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.testing.provider.buckets import AccountLimits, RefillingBucket
from tidegate.testing.provider.headers import go_duration, limit_headers, retry_headers
from tidegate.testing.provider.outages import Outage, OutageSchedule
from tidegate.testing.provider.refusals import limit_exceeded


class Clock:
    """A monotonic clock that only moves when told to."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def bucket(clock, limit=60, window_seconds=60.0, **options):
    return RefillingBucket(limit=limit, window_seconds=window_seconds, monotonic=clock, **options)


def test_a_full_bucket_lets_its_burst_through_and_no_more():
    clock = Clock()
    limits = AccountLimits(requests=bucket(clock, burst=3), tokens=None)

    admitted = [limits.admit(1) is None for _ in range(5)]

    assert admitted == [True, True, True, False, False]


def test_a_bucket_refills_continuously_and_not_at_the_minute():
    clock = Clock()
    tokens = bucket(clock, limit=60, level=0)

    clock.now += 0.5
    assert tokens.level == pytest.approx(0.5)
    assert tokens.wait_seconds(1) == pytest.approx(0.5)
    clock.now += 0.5
    assert tokens.wait_seconds(1) == 0


def test_a_rested_bucket_holds_no_more_than_its_burst():
    clock = Clock()
    tokens = bucket(clock, limit=60, burst=10)

    clock.now += 3_600

    assert tokens.level == 10
    assert tokens.reset_seconds() == 0


def test_more_than_the_whole_bucket_can_never_pass():
    assert bucket(Clock(), limit=60, burst=10).wait_seconds(11) == math.inf


def test_a_clock_that_stands_still_or_steps_back_gives_nothing():
    clock = Clock()
    tokens = bucket(clock, level=5)

    clock.now -= 100

    assert tokens.level == 5


@settings(deadline=None, max_examples=60)
@given(
    limit=st.integers(1, 100_000),
    burst=st.integers(1, 100_000),
    window=st.floats(0.01, 120),
    amounts=st.lists(st.integers(1, 5_000), min_size=1, max_size=20),
)
def test_a_caller_that_waits_the_stated_time_gets_through(limit, burst, window, amounts):
    clock = Clock()
    limits = AccountLimits(requests=None, tokens=bucket(clock, limit, window, burst=burst))

    for amount in amounts:
        shortage = limits.admit(amount)
        if shortage is None:
            continue
        if amount > burst:
            assert math.isinf(shortage.wait_seconds)
            continue
        clock.now += shortage.wait_seconds
        assert limits.admit(amount) is None


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(st.floats(0, 3), min_size=1, max_size=80))
def test_no_window_sees_more_than_the_burst_plus_its_refill(steps):
    clock = Clock()
    limits = AccountLimits(requests=bucket(clock, limit=30, window_seconds=10, burst=5), tokens=None)
    passed = []

    for step in steps:
        clock.now += step
        while limits.admit(1) is None:
            passed.append(clock.now)

    for start in passed:
        assert sum(start <= at < start + 10 for at in passed) <= 5 + 30 + 1e-6


def test_a_call_short_of_tokens_takes_no_request_either():
    clock = Clock()
    limits = AccountLimits(requests=bucket(clock, 10), tokens=bucket(clock, 100, level=50))

    shortage = limits.admit(80)

    assert (shortage.dimension, shortage.limit, shortage.used, shortage.requested) == ("tokens", 100, 50, 80)
    assert limits.requests.level == 10
    assert limits.tokens.level == 50


def test_of_two_exceeded_limits_the_longer_wait_is_named():
    clock = Clock()
    limits = AccountLimits(requests=bucket(clock, 6, level=0), tokens=bucket(clock, 600, level=0))

    assert limits.admit(10).dimension == "requests"  # 10 s for a request, 1 s for 10 tokens
    assert limits.admit(200).dimension == "tokens"


def test_the_wording_and_the_wait_are_those_of_openai():
    clock = Clock()
    limits = AccountLimits(requests=None, tokens=bucket(clock, 50_000, level=50_000 - 47_949))

    refusal = limit_exceeded(limits.admit(3_006), "gpt-x")

    assert (
        "on tokens per min (TPM): Limit 50000, Used 47949, Requested 3006. Please try again in 1.146s."
        in refusal.message
    )
    assert (refusal.status, refusal.type, refusal.code) == (429, "tokens", "rate_limit_exceeded")
    assert refusal.headers == {"retry-after": "2", "retry-after-ms": "1146"}


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"),
        (0.12, "120ms"),
        (0.0001, "1ms"),
        (1, "1s"),
        (8.64, "8.64s"),
        (60, "1m0s"),
        (179.56, "2m59.56s"),
        (432, "7m12s"),
        (3723.5, "1h2m3.5s"),
        (7200, "2h0m0s"),
    ],
)
def test_a_duration_is_written_as_go_does(seconds, written):
    assert go_duration(seconds) == written


def test_a_wait_is_rounded_up_in_both_headers():
    assert retry_headers(0.0002) == {"retry-after": "1", "retry-after-ms": "1"}
    assert retry_headers(20.0) == {"retry-after": "20", "retry-after-ms": "20000"}
    assert retry_headers(20.0001) == {"retry-after": "21", "retry-after-ms": "20001"}


def test_only_limited_dimensions_have_headers_and_the_reset_is_that_of_a_full_bucket():
    clock = Clock()
    limits = AccountLimits(requests=None, tokens=bucket(clock, 600, level=100.4))

    assert limit_headers(limits) == {
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "100",
        "x-ratelimit-reset-tokens": "49.96s",
    }


def test_the_schedule_gives_the_current_outage_and_its_next_change():
    clock = Clock()
    table = OutageSchedule([Outage(5, 10, "503"), Outage(8, 12, "hang")], monotonic=clock)
    seen = []
    for _ in range(5):
        seen.append((table.current, table.next_change_seconds()))
        clock.now += table.next_change_seconds() or 0

    assert seen == [(None, 5), ("503", 3), ("503", 2), ("hang", 2), (None, None)]


def test_a_manual_outage_comes_first_and_keeps_the_schedule():
    clock = Clock()
    table = OutageSchedule([Outage(0, 10, "503")], monotonic=clock)

    table.begin("reset", 2)
    assert table.current == "reset"
    clock.now += 2
    assert table.current == "503"
    table.begin("hang")
    assert table.current == "hang"
    table.end()
    assert table.current == "503"
