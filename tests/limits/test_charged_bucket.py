"""A charged bucket charges a bucket exactly as the functions of `token_bucket` do."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.spec import Window
from tidegate.limits import token_bucket
from tidegate.limits.charged_bucket import ChargedBucket
from tidegate.limits.values import TokenBucket

START = 1_764_547_200.0  # midnight UTC

windows = st.builds(
    Window,
    st.just("w"),
    st.integers(1, 50),
    st.sampled_from([1.0, 60.0, 3_600.0, 86_400.0]),
    is_fixed=st.booleans(),
)
buckets = st.builds(
    TokenBucket,
    next_at=st.floats(START - 100, START + 100),
    window_started_at=st.sampled_from([0.0, START - 86_400, START - 60, START - 1, START]),
    used=st.integers(0, 60),
    carried_over=st.integers(0, 5),
)


@given(
    window=windows,
    bucket=buckets,
    steps=st.lists(st.floats(0.0, 90.0), min_size=1, max_size=60),
    stretch=st.sampled_from([1.0, 2.5, 10.0]),
)
def test_a_charged_bucket_grants_and_charges_the_same_slots_as_the_bucket(
    window: Window, bucket: TokenBucket, steps: list[float], stretch: float
) -> None:
    # A stored window begins at a multiple of its length.
    began_at = math.floor(bucket.window_started_at / window.seconds) * window.seconds
    bucket = replace(bucket, window_started_at=began_at)
    charged, now = ChargedBucket(window, bucket, stretch), START

    for step in steps:
        now += step
        slot_at = token_bucket.next_slot_at(window, bucket, now)
        assert charged.next_slot_at(now) == slot_at
        bucket = token_bucket.charge(window, bucket, slot_at, stretch=stretch)
        charged.charge(slot_at)

    assert charged.bucket == bucket


@given(window=windows, bucket=buckets)
def test_a_charged_bucket_that_is_only_asked_leaves_its_bucket_uncharged(
    window: Window, bucket: TokenBucket
) -> None:
    charged = ChargedBucket(window, bucket)

    charged.next_slot_at(START)

    assert not charged.is_charged


@given(window=windows, bucket=buckets, other=st.floats(0.0, 30.0))
def test_a_charged_bucket_charges_a_slot_that_another_window_delays(
    window: Window, bucket: TokenBucket, other: float
) -> None:
    at = token_bucket.next_slot_at(window, bucket, START) + other
    charged = ChargedBucket(window, bucket)
    charged.next_slot_at(START)
    charged.charge(at)

    assert charged.bucket == token_bucket.charge(window, bucket, at)
