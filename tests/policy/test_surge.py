"""A surge of deaths: found against the same hours of earlier days, in count and in share."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.policy.surge import DAYS, Baseline, Deaths, Surge, Window, baseline_windows, find_surge

HOUR, DAY = 60, 1440
NOON = 1_000 * DAY + 12 * HOUR

COUNTS = st.integers(0, 100_000)
PERIODS = st.builds(Deaths, st.floats(1.0, 1_440.0), COUNTS, COUNTS)


def hours(*counts: tuple[int, int]) -> list[Deaths]:
    """Return periods of an hour, each of (deaths, ended tasks)."""
    return [Deaths(60.0, deaths, ended) for deaths, ended in counts]


def surge(now: tuple[int, int], *earlier: tuple[int, int]) -> Surge:
    return find_surge(hours(now)[0], hours(*earlier), "the same hours of some earlier days")


def test_an_hour_like_those_of_earlier_days_is_no_surge() -> None:
    assert not surge((11, 1_000), *[(10, 1_000)] * 7).surges


def test_many_more_deaths_of_as_many_tasks_surge_in_count_and_in_share() -> None:
    found = surge((60, 1_000), *[(10, 1_000)] * 7)
    assert (found.count.surges, found.share.surges) == (True, True)
    assert found.count.expected == pytest.approx(10.0)
    assert found.count.factor == pytest.approx(6.0)
    assert found.share.now == pytest.approx(0.06)
    assert found.share.expected == pytest.approx(0.01)


def test_three_times_the_traffic_with_the_same_share_surges_in_count_alone() -> None:
    found = surge((300, 30_000), *[(100, 10_000)] * 7)
    assert (found.count.surges, found.share.surges) == (True, False)


def test_an_outage_at_night_surges_in_share_although_the_count_is_usual() -> None:
    found = surge((40, 50), *[(40, 4_000)] * 7)
    assert (found.count.surges, found.share.surges) == (False, True)


def test_four_deaths_are_never_a_surge_and_a_burst_after_a_quiet_fortnight_is() -> None:
    quiet = [(0, 500)] * 14
    assert not surge((4, 4), *quiet).surges
    assert surge((12, 500), *quiet).surges
    assert surge((12, 500), *quiet).count.factor == pytest.approx(12.0)


def test_large_counts_that_rise_by_less_than_double_are_no_surge() -> None:
    assert not surge((19_000, 1_000_000), *[(10_000, 1_000_000)] * 14).surges
    assert surge((21_000, 1_000_000), *[(10_000, 1_000_000)] * 14).surges


def test_yesterdays_incident_does_not_hide_the_one_of_today() -> None:
    assert surge((400, 1_000), (500, 1_000), *[(10, 1_000)] * 6).count.surges


def test_days_that_differ_widely_make_the_limit_higher_than_steady_ones() -> None:
    steady = surge((50, 1_000), *[(10, 1_000)] * 14)
    varying = surge((50, 1_000), *[(1, 1_000), (19, 1_000)] * 7)
    assert steady.count.limit is not None
    assert varying.count.limit is not None
    assert steady.count.limit < varying.count.limit


def test_one_earlier_hour_needs_more_deaths_than_fourteen_days() -> None:
    short, long = surge((50, 500), (3, 500)), surge((50, 500), *[(3, 500)] * 14)
    assert short.count.limit is not None
    assert long.count.limit is not None
    assert short.count.limit > long.count.limit


def test_without_anything_earlier_nothing_surges_and_the_reason_says_so() -> None:
    found = surge((500, 500))
    assert not found.surges
    assert found.count.expected is None
    assert found.why == (
        "500 deaths in 1 h, with nothing earlier to compare; 100% of 500 ended tasks, with nothing earlier to compare"
    )


def test_a_function_that_is_new_today_surges_in_count_and_its_share_has_no_baseline() -> None:
    found = surge((500, 500), *[(0, 0)] * 14)
    assert found.count.surges
    assert found.share.expected is None


def test_the_sentence_names_the_numbers_the_baseline_and_the_limit() -> None:
    assert surge((60, 1_000), *[(10, 1_000)] * 7).why == (
        "60 deaths in 1 h, 10 expected from the same hours of some earlier days (×6), a surge begins at 24; "
        "6.0% of 1,000 ended tasks, 1.0% expected (×6), a surge begins at 2.4%"
    )


def test_a_share_whose_limit_is_above_everything_says_so() -> None:
    assert "a surge would begin above 100%" in surge((2, 3), *[(0, 500)] * 14).share.why


@pytest.mark.parametrize("seed", range(5))
def test_a_fortnight_of_day_and_night_has_few_false_surges_and_each_true_one_is_found(seed: int) -> None:
    chance = random.Random(seed)

    def drawn(at: int, factor: float = 1.0) -> Deaths:
        ended = round(1_000 * (1.1 + math.sin(at % 24 / 24 * 2 * math.pi)) * chance.uniform(0.8, 1.25))
        return Deaths(60.0, sum(chance.random() < 0.02 * factor for _ in range(ended)), ended)

    history = [drawn(at) for at in range(15 * 24)]
    false = missed = 0
    for at in range(14 * 24, 15 * 24):
        earlier = [history[at - day * 24] for day in range(1, 15)]
        false += find_surge(history[at], earlier, "").surges
        missed += not find_surge(drawn(at, 8.0), earlier, "").surges
    assert false == 0
    assert missed <= 1  # the hour in which almost no task ends


@settings(deadline=None)
@given(now=PERIODS, earlier=st.lists(PERIODS, max_size=14), more=st.integers(1, 1_000))
def test_more_deaths_never_end_a_surge_of_the_count(now: Deaths, earlier: list[Deaths], more: int) -> None:
    risen = Deaths(now.minutes, now.deaths + more, now.ended + more)
    before, after = find_surge(now, earlier, ""), find_surge(risen, earlier, "")
    assert after.count.surges or not before.count.surges
    assert after.count.limit == before.count.limit


@settings(deadline=None)
@given(now=PERIODS, earlier=st.lists(PERIODS, max_size=14), order=st.randoms())
def test_every_number_is_finite_and_the_order_of_days_does_not_matter(
    now: Deaths, earlier: list[Deaths], order: random.Random
) -> None:
    shuffled = list(earlier)
    order.shuffle(shuffled)
    found, again = find_surge(now, earlier, ""), find_surge(now, shuffled, "")
    for one, other in ((found.count, again.count), (found.share, again.share)):
        assert one.surges == other.surges
        assert one.why == other.why
        for number in (one.now, one.expected, one.limit, one.factor):
            assert number is None or (math.isfinite(number) and number >= 0)
        if one.surges:
            assert now.deaths >= 5
            assert one.factor is not None
            assert one.factor >= 2.0


@settings(deadline=None)
@given(st.integers(0, 4), st.lists(PERIODS, max_size=14), st.floats(1.0, 1_440.0), COUNTS)
def test_fewer_than_five_deaths_never_surge(
    deaths: int, earlier: list[Deaths], minutes: float, ended: int
) -> None:
    assert not find_surge(Deaths(minutes, deaths, ended), earlier, "").surges


def test_the_baseline_has_the_same_hours_of_fourteen_days() -> None:
    found = baseline_windows(NOON + 37, 15, known_since=0)
    assert found.name == "the same hours of 14 earlier days"
    assert found.windows[0] == Window(NOON - DAY, NOON - DAY + HOUR)
    assert found.windows[-1] == Window(NOON - 14 * DAY, NOON - 14 * DAY + HOUR)


def test_a_young_store_is_compared_with_the_hours_before() -> None:
    found = baseline_windows(NOON, 60, known_since=NOON - 4 * HOUR)
    assert found == Baseline(
        (
            Window(NOON - 2 * HOUR, NOON - HOUR),
            Window(NOON - 3 * HOUR, NOON - 2 * HOUR),
            Window(NOON - 4 * HOUR, NOON - 3 * HOUR),
        ),
        "the 3 hours before",
    )


@pytest.mark.parametrize("known_since", [None, NOON - 90])
def test_a_store_without_a_full_hour_before_has_no_baseline(known_since: int | None) -> None:
    assert baseline_windows(NOON, 60, known_since).windows == ()


@settings(deadline=None)
@given(now=st.integers(20 * DAY, 40_000 * DAY), minutes=st.integers(1, 7 * DAY), age=st.integers(0, 30 * DAY))
def test_earlier_periods_are_full_hours_that_overlap_neither_each_other_nor_the_present_one(
    now: int, minutes: int, age: int
) -> None:
    known_since = now - age
    windows = baseline_windows(now, minutes, known_since).windows
    assert len(windows) <= max(DAYS, 24)
    for window in windows:
        assert window.first % HOUR == window.end % HOUR == 0
        assert known_since <= window.first < window.end <= now - minutes + HOUR - 1
        assert window.end - window.first in (HOUR, windows[0].end - windows[0].first)
    for later, earlier in pairwise(windows):
        assert earlier.end <= later.first
