"""How well the learned rate uses quotas that nobody declared rightly, against simulated providers."""

from __future__ import annotations

import pytest

from limits.simulated_limits import Case, EvenRefill, FixedWindow, Totals, simulate
from tidegate.domain.spec import Window
from tidegate.limits.settings import Limits


def declared(per_minute: float, *, is_fixed: bool = False) -> Limits:
    return Limits((Window("requests_per_minute", round(per_minute), 60.0, is_fixed=is_fixed),))


def goodput(totals: Totals, per_second: float, since: int, until: float) -> float:
    """Return the answered calls as a part of the quota."""
    good = sum(calls for second, calls in totals.answered_by_second.items() if since <= second < until)
    return good / (per_second * (until - since))


def refused_share(totals: Totals) -> float:
    return totals.refused / (totals.refused + totals.answered)


@pytest.mark.parametrize("waits", ["exact", "ceil", "none"])
@pytest.mark.parametrize("bucket_seconds", [1.0, 10.0])
def test_a_quota_of_six_tenths_of_the_declared_one_is_used(waits, bucket_seconds):
    case = Case(declared(2400), waits=waits, seconds=90.0)
    totals = simulate(EvenRefill(24.0, 24.0 * bucket_seconds), case, seed=1)
    assert refused_share(totals) <= 0.02
    assert goodput(totals, 24.0, 12, 90.0) >= 0.97


@pytest.mark.parametrize("waits", ["exact", "ceil", "none"])
def test_a_small_bucket_is_used_too(waits):
    totals = simulate(EvenRefill(24.0, 6.0), Case(declared(2400), waits=waits, seconds=90.0), seed=2)
    assert refused_share(totals) <= 0.025
    assert goodput(totals, 24.0, 20, 90.0) >= 0.93


@pytest.mark.parametrize("waits", ["exact", "none"])
def test_calls_of_five_seconds_are_slowed_as_fast(waits):
    case = Case(declared(2400), waits=waits, seconds=90.0, latency=5.0, slots=300)
    totals = simulate(EvenRefill(24.0, 24.0), case, seed=1)
    assert refused_share(totals) <= 0.02
    assert goodput(totals, 24.0, 12, 84.0) >= 0.96


@pytest.mark.parametrize("waits", ["exact", "none"])
def test_a_quota_of_two_calls_a_second_is_used(waits):
    case = Case(declared(200), waits=waits, seconds=600.0)
    totals = simulate(EvenRefill(2.0, 20.0), case, seed=3)
    assert refused_share(totals) <= 0.02
    assert goodput(totals, 2.0, 20, 600.0) >= 0.97


@pytest.mark.parametrize("waits", ["exact", "ceil", "none"])
def test_nothing_declared_and_no_headers(waits):
    totals = simulate(EvenRefill(40.0, 40.0), Case(waits=waits, seconds=60.0), seed=1)
    assert refused_share(totals) <= 0.03
    assert goodput(totals, 40.0, 2, 60.0) >= 0.93


@pytest.mark.parametrize("bucket_seconds", [1.0, 60.0])
def test_nothing_declared_and_headers_that_state_the_limit_by_the_minute(bucket_seconds):
    case = Case(seconds=60.0, shown_limit=2400.0)
    totals = simulate(EvenRefill(40.0, 40.0 * bucket_seconds), case, seed=1)
    assert refused_share(totals) <= 0.01
    assert goodput(totals, 40.0, 2, 60.0) >= 0.97


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_declared_limit_that_the_provider_counts_in_fixed_minutes(is_fixed):
    totals = simulate(FixedWindow(24.0), Case(declared(1440, is_fixed=is_fixed), seconds=180.0), seed=1)
    assert refused_share(totals) <= 0.002
    assert sum(calls for second, calls in totals.refused_by_second.items() if second >= 60) <= 4
    assert goodput(totals, 24.0, 0, 180.0) >= 0.97


def test_a_quota_that_rises_tenfold_is_used_within_eight_minutes():
    provider = EvenRefill(4.0, 40.0)
    totals = simulate(provider, Case(declared(3000), seconds=600.0), seed=1, raised=(60.0, 40.0))
    assert goodput(totals, 40.0, 540, 600.0) >= 0.9


def test_a_quota_that_falls_to_a_fifth_is_kept_after_a_few_refusals():
    provider = EvenRefill(40.0, 40.0)
    totals = simulate(provider, Case(declared(2400), seconds=180.0), seed=1, raised=(60.0, 8.0))
    assert goodput(totals, 8.0, 90, 180.0) >= 0.9
    assert sum(calls for second, calls in totals.refused_by_second.items() if second >= 60) <= 120
