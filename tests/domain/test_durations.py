"""Durations in buckets, and what they tell of a percentile."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.durations import BUCKETS, bucket_of, estimate_percentile, longest_of


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(-1.0, 0), (0.0, 0), (0.01, 0), (0.011, 1), (0.02, 1), (0.03, 2), (1.0, 7), (10_000.0, 20), (1e9, 21)],
)
def test_a_duration_has_the_first_bucket_that_reaches_it(seconds: float, bucket: int) -> None:
    assert bucket_of(seconds) == bucket


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_has_a_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert 0 <= bucket < BUCKETS
    if not math.isnan(seconds) and bucket < BUCKETS - 1:
        assert seconds <= longest_of(bucket) * 1.000001


@given(st.lists(st.floats(0.02, 5_000), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_estimated_within_a_factor_of_two(times: list[float], share: float) -> None:
    exact = sorted(times)[max(0, math.ceil(share * len(times)) - 1)]
    estimate = estimate_percentile(Counter(map(bucket_of, times)), share)
    assert estimate is not None
    assert exact / 2.001 <= estimate <= exact * 2.001


def test_without_runs_there_is_no_percentile() -> None:
    assert estimate_percentile({}, 0.95) is None
    assert estimate_percentile({21: 4}, 0.5) == longest_of(20)
