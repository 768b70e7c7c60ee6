import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.spec import Exponential, Fixed, Jitter, Polynomial
from tidegate.policy.backoff import (
    JITTER,
    LARGEST_SPREAD_SECONDS,
    LONGEST_DELAY_SECONDS,
    delay_seconds,
    with_floor,
)


def middle() -> float:
    """Draw the jitter that changes nothing."""
    return 0.5


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (50, 600)])
def test_the_default_doubles_from_ten_seconds_to_ten_minutes(attempt, seconds):
    assert delay_seconds(Exponential(), attempt, middle) == pytest.approx(seconds)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 3), (2, 18), (3, 83), (4, 258), (30, 86_400)])
def test_a_polynomial_backoff_is_the_fourth_power_and_two_seconds(attempt, seconds):
    assert delay_seconds(Polynomial(), attempt, middle) == pytest.approx(seconds)


def test_a_fixed_backoff_stays_the_same():
    assert [delay_seconds(Fixed(7), attempt, middle) for attempt in (1, 2, 9)] == pytest.approx([7, 7, 7])


def test_an_attempt_before_the_first_counts_as_the_first():
    assert delay_seconds(Exponential(), 0, middle) == delay_seconds(Exponential(), 1, middle)


def test_jitter_spreads_from_a_fifth_less_to_a_fifth_more():
    rng = random.Random(2)
    delays = [delay_seconds(Fixed(100), 1, rng) for _ in range(2_000)]
    assert 80 <= min(delays) < 81
    assert 119 < max(delays) <= 120


@pytest.mark.parametrize(
    ("jitter", "least", "most"),
    [("narrow", 80, 120), ("equal", 50, 100), ("full", 0, 100), ("none", 100, 100)],
)
def test_the_named_jitter_is_applied(jitter, least, most):
    backoff = Fixed(100, jitter=jitter)

    assert delay_seconds(backoff, 1, lambda: 0.0) == pytest.approx(least)
    assert delay_seconds(backoff, 1, lambda: 1.0) == pytest.approx(most)
    assert backoff.jitter is Jitter(jitter)


@pytest.mark.parametrize("attempt", [1, 2, 1_100, 10_000])
def test_a_base_of_zero_stays_zero_however_many_attempts_failed(attempt):
    assert delay_seconds(Exponential(base=0), attempt, middle) == 0


@pytest.mark.parametrize(
    "backoff",
    [
        Exponential(),
        Exponential(factor=1e300, cap=LONGEST_DELAY_SECONDS),
        Exponential(base=LONGEST_DELAY_SECONDS, cap=LONGEST_DELAY_SECONDS),
        Polynomial(power=400.0),
        Polynomial(power=400.0, cap=LONGEST_DELAY_SECONDS),
        Fixed("366d"),
    ],
)
@pytest.mark.parametrize("attempt", [1, 10_000, 10**18])
def test_no_plan_overflows_or_outlasts_a_year(backoff, attempt):
    delay = delay_seconds(backoff, attempt, random.Random(1))
    assert 0 <= delay <= LONGEST_DELAY_SECONDS * (1 + JITTER)


def test_a_servers_wait_is_only_ever_lengthened():
    assert with_floor(4.0, 120.0, lambda: 0.0) == 120.0
    assert with_floor(4.0, 120.0, lambda: 1.0) == pytest.approx(144.0)
    assert with_floor(4.0, 86_400.0, lambda: 1.0) == 86_400.0 + LARGEST_SPREAD_SECONDS


def test_a_longer_delay_of_our_own_stays():
    assert with_floor(10.0, 4.0, lambda: 1.0) == 10.0
    assert with_floor(10.0, 0.0, lambda: 1.0) == 10.0
    assert with_floor(10.0, None, lambda: 1.0) == 10.0


def test_a_delay_that_equals_the_floor_is_still_spread():
    assert with_floor(60.0, 60.0, lambda: 0.5) == pytest.approx(66.0)


@settings(max_examples=100, deadline=None, database=None)
@given(st.floats(0, 1e6), st.floats(0, 86_400), st.randoms(use_true_random=False))
def test_no_jitter_goes_below_the_floor(delay, floor, rng):
    waited = with_floor(delay, floor, rng)
    assert waited >= max(delay, floor)
    assert waited <= max(delay, floor + LARGEST_SPREAD_SECONDS)
