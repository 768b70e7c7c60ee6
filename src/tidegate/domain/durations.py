"""Durations in a few buckets, so that a percentile can be estimated from counts that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping

SHORTEST_SECONDS = 0.01
BUCKETS = 22
"""Bucket 0 has durations up to 10 ms. Each next one ends at twice as long, the last but one at 2.9 hours."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration. The SQL of both stores has the same formula."""
    if not seconds > SHORTEST_SECONDS:
        return 0
    return math.ceil(min(BUCKETS - 1.0, math.log2(seconds / SHORTEST_SECONDS)))


def longest_of(bucket: int) -> float:
    """Return the longest duration of a bucket; infinity for the last."""
    return math.inf if bucket >= BUCKETS - 1 else SHORTEST_SECONDS * 2.0**bucket


def estimate_percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the duration that this share of all did not exceed; None without counts.

    Within a bucket durations are taken as spread evenly on a logarithmic scale, so the estimate is wrong by a
    factor of two at most, and usually by a tenth. Above the last bound it is that bound.

    Args:
        counts: Number of durations by bucket.
        share: 0 to 1: 0.95 for the 95th percentile.
    """
    total = sum(counts.values())
    if total <= 0:
        return None
    wanted, seen = share * total, 0
    for bucket, count in sorted(counts.items()):
        if seen + count >= wanted and count:
            return _within(bucket, max(0.0, wanted - seen) / count)
        seen += count
    return _within(max(counts), 1.0)


def _within(bucket: int, part: float) -> float:
    if bucket == 0:
        return SHORTEST_SECONDS * part
    shortest = longest_of(bucket - 1)
    return shortest if bucket >= BUCKETS - 1 else shortest * 2.0**part
