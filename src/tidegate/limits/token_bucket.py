"""When the next request may start: even pacing by GCRA, and windows counted from edge to edge.

A caller is given a moment, never a refusal: it starts then. Slots are handed out in order, so any number
of processes that share one meter keep one pace. GCRA: ATM Forum Traffic Management 4.0, section 4.4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.limits.values import TokenBucket

CATCH_UP_SECONDS = 0.5
"""Slots of so long ago may still be used, so that a late claim loses no quota. At least the newest one."""
GUARD_SHARE = 1 / 60
"""The part of a fixed window on either side of its edge that counts for both windows: clocks differ."""
GUARD_LIMIT_SECONDS = 60.0


def next_slot_at(window: Window, bucket: TokenBucket, now: float) -> float:
    """Return when the next request of a window may start: now, or later."""
    if not window.is_fixed:
        return max(now, bucket.next_at - _catch_up(window))
    bucket = _roll_over(window, bucket, now)
    if bucket.used < window.amount:
        return max(
            now, bucket.window_started_at + guard_seconds(window)
        )  # the window may have turned for one to come
    return bucket.window_started_at + window.seconds + guard_seconds(window)


def charge(window: Window, bucket: TokenBucket, at: float, *, stretch: float = 1.0) -> TokenBucket:
    """Return the meter after a request that starts `at`, a moment `next_slot_at` gave.

    Args:
        window: The limit.
        bucket: What is used of it.
        at: When the request starts.
        stretch: How many slots it takes, ≥ 1: a pace of a tenth is a stretch of ten.
    """
    if not window.is_fixed:
        return replace(bucket, next_at=max(bucket.next_at, at) + slot_interval(window) * stretch)
    bucket = _roll_over(window, bucket, at)
    is_near_edge = _seconds_to_window_end(window, bucket, at) <= guard_seconds(window)
    return replace(bucket, used=bucket.used + 1, carried_over=bucket.carried_over + is_near_edge)


def count_slots(
    window: Window, bucket: TokenBucket, now: float, until: float, *, stretch: float = 1.0
) -> int:
    """Return how many requests may start from `now` to `until`, a moment shortly after it.

    Args:
        window: The limit.
        bucket: What is used of it.
        now: By the store's clock.
        until: The end of the look ahead, included.
        stretch: How many slots each request takes, ≥ 1.
    """
    if next_slot_at(window, bucket, now) > until:
        return 0
    if window.is_fixed:
        return max(1, window.amount - _roll_over(window, bucket, now).used)
    free_from = max(bucket.next_at, now) - _catch_up(window)
    return max(1, math.floor((until - free_from) / (slot_interval(window) * stretch)) + 1)


def seconds_until_slot(
    window: Window, bucket: TokenBucket, now: float, requests: int, *, stretch: float = 1.0
) -> float:
    """Return the seconds until the last of so many requests may start, all of the window's slots used.

    Args:
        window: The limit.
        bucket: What is used of it.
        now: By the store's clock.
        requests: How many, at least 1.
        stretch: How many slots each request takes, ≥ 1.
    """
    first = next_slot_at(window, bucket, now)
    if not window.is_fixed:
        last = max(bucket.next_at, now) - _catch_up(window) + (requests - 1) * slot_interval(window) * stretch
        return max(first, last) - now
    turned = _roll_over(window, bucket, now)
    left = max(0, window.amount - turned.used)
    if requests <= left:
        return first - now
    opens_at = turned.window_started_at + window.seconds + guard_seconds(window)
    return opens_at + (requests - left - 1) // window.amount * window.seconds - now


def drop_burst(window: Window, bucket: TokenBucket, since: float) -> TokenBucket:
    """Return the meter so that no slot from before `since`, when nothing could start, is used later."""
    return replace(bucket, next_at=max(bucket.next_at, since + _catch_up(window)))


def rescale_buckets(
    buckets: Mapping[str, TokenBucket], before: Iterable[Window], after: Iterable[Window], now: float
) -> dict[str, TokenBucket]:
    """Return the buckets after limits were changed: as many slots are taken at a pace that is faster.

    Else a limit of one an hour, set by mistake and mended at once, would hold for the hour.
    """
    slower = {window.name: window for window in before}
    rescaled = dict(buckets)
    for window in after:
        old, bucket = slower.get(window.name), buckets.get(window.name)
        if old is not None and bucket is not None:
            rescaled[window.name] = speed_up(bucket, slot_interval(window) / slot_interval(old), now)
    return rescaled


def speed_up(bucket: TokenBucket, ratio: float, now: float) -> TokenBucket:
    """Return a meter whose next slot is nearer by this part; unchanged from 1 on, or if it is free."""
    ahead = bucket.next_at - now
    return replace(bucket, next_at=now + ahead * ratio) if ratio < 1 and ahead > 0 else bucket


def next_slot_in_all(windows: Iterable[Window], buckets: Mapping[str, TokenBucket], now: float) -> float:
    """Return when a request may start that all these windows must let through."""
    return max((next_slot_at(window, buckets.get(window.name, _NEW), now) for window in windows), default=now)


def charge_all(
    windows: Iterable[Window], buckets: Mapping[str, TokenBucket], at: float, *, stretch: float = 1.0
) -> dict[str, TokenBucket]:
    """Return the buckets of these windows after one request that starts `at`."""
    return {
        window.name: charge(window, buckets.get(window.name, _NEW), at, stretch=stretch) for window in windows
    }


def slot_interval(window: Window) -> float:
    """Return the seconds between two slots of an even pace."""
    return window.seconds / window.amount


def guard_seconds(window: Window) -> float:
    """Return how far around the edges of a fixed window requests count for both sides."""
    return min(GUARD_LIMIT_SECONDS, window.seconds * GUARD_SHARE)


def used_requests(window: Window, bucket: TokenBucket, now: float) -> int | None:
    """Return the requests counted in the present window; None for a bucket, which counts none."""
    return _roll_over(window, bucket, now).used if window.is_fixed else None


def _catch_up(window: Window) -> float:
    """Return how far behind its slots a request may still come."""
    pace = slot_interval(window)
    return math.floor(CATCH_UP_SECONDS / pace) * pace


def window_start(window: Window, now: float) -> float:
    """Return when the window began that `now` counts in: the old one until a guard past its edge."""
    return math.floor((now - guard_seconds(window)) / window.seconds) * window.seconds


def _roll_over(window: Window, bucket: TokenBucket, now: float) -> TokenBucket:
    """Return the meter of the window that `now` counts in."""
    window_started_at = window_start(window, now)
    if window_started_at <= bucket.window_started_at:
        return bucket
    follows = window_started_at - bucket.window_started_at <= window.seconds * 1.5
    return TokenBucket(bucket.next_at, window_started_at, used=bucket.carried_over if follows else 0)


def _seconds_to_window_end(window: Window, bucket: TokenBucket, at: float) -> float:
    """Return how far before the edge at the window's end a moment is; negative: past it, within the guard."""
    return bucket.window_started_at + window.seconds - at


_NEW = TokenBucket()
