"""Decides when the next request may start: even pacing by GCRA, or fixed windows.

A limit of tokens works like a limit of requests, except that one request uses several units of it: `amount`.

A caller always gets a start time, never a refusal. Slots are handed out in order, so all processes that share
one bucket keep its rate together. GCRA: ATM Forum Traffic Management 4.0, section 4.4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.domain.usage import NO_TOKENS, Tokens
from tidegate.limits.values import TokenBucket

CATCH_UP_SECONDS = 0.5
"""The greatest age, in seconds, of a slot that may still be used, so that a late claim loses no quota."""
GUARD_SHARE = 1 / 60
"""A request this close to the edge of a fixed window, as a share of its length, counts for both windows: the
provider's clock may differ from ours."""
GUARD_LIMIT_SECONDS = 60.0


def next_slot_at(window: Window, bucket: TokenBucket, now: float, *, amount: int = 1) -> float:
    """Return when a request of this amount may start: now, or later.

    In a fixed window the whole amount must be left; one larger than the window waits for an empty window.
    Even pacing delays the requests that follow instead.
    """
    if not window.is_fixed:
        return max(now, bucket.next_at - catch_up_seconds(window))
    bucket = roll_over(window, bucket, now)
    if bucket.used + min(amount, window.amount) <= window.amount:
        # The bucket may already be in the next window, which has not begun yet.
        return max(now, bucket.window_started_at + guard_seconds(window))
    return bucket.window_started_at + window.seconds + guard_seconds(window)


def charge(
    window: Window, bucket: TokenBucket, at: float, *, stretch: float = 1.0, amount: int = 1
) -> TokenBucket:
    """Return the bucket after a request that starts at `at`, a time that `next_slot_at` returned.

    Args:
        window: The limit.
        bucket: The bucket before.
        at: When the request starts.
        stretch: How many slots the request takes, at least 1. At a tenth of the rate, a request takes 10
            slots.
        amount: How much of the limit the request uses.
    """
    if not window.is_fixed:
        next_at = max(bucket.next_at, at) + slot_interval(window) * stretch * amount
        return replace(bucket, next_at=next_at, used=bucket.used + amount)
    bucket = roll_over(window, bucket, at)
    is_near_edge = _seconds_to_window_end(window, bucket, at) <= guard_seconds(window)
    carried_over = bucket.carried_over + amount * is_near_edge
    return replace(bucket, used=bucket.used + amount, carried_over=carried_over)


def settle(
    window: Window, bucket: TokenBucket, now: float, difference: int, *, charged_at: float
) -> TokenBucket:
    """Return the bucket after a request turned out to use more or less than was charged for it.

    Tokens are given back only as far as the bucket is ahead of now, because slots in the past are lost. A
    fixed window gets back only what was charged to itself.

    Args:
        window: The limit.
        bucket: The bucket before.
        now: The current time by the store's clock.
        difference: What the request used minus what was charged.
        charged_at: When the request was charged.
    """
    if not window.is_fixed:
        next_at = bucket.next_at + slot_interval(window) * difference
        return replace(bucket, next_at=max(next_at, min(bucket.next_at, now)))
    bucket = roll_over(window, bucket, now)
    if difference < 0 and window_start(window, charged_at) < bucket.window_started_at:
        return bucket
    return replace(bucket, used=max(0, bucket.used + difference))


def count_slots(
    window: Window,
    bucket: TokenBucket,
    now: float,
    until: float,
    *,
    stretch: float = 1.0,
    amount: int = 1,
) -> int:
    """Return how many requests may start from `now` to `until`, a time shortly after it.

    Args:
        window: The limit.
        bucket: The current bucket.
        now: The current time by the store's clock.
        until: The end of the period, inclusive.
        stretch: How many slots each request takes, at least 1.
        amount: How much of the limit each request uses.
    """
    if next_slot_at(window, bucket, now, amount=amount) > until:
        return 0
    amount = max(1, amount)
    if window.is_fixed:
        return max(1, (window.amount - roll_over(window, bucket, now).used) // amount)
    free_from = max(bucket.next_at, now) - catch_up_seconds(window)
    return max(1, math.floor((until - free_from) / (slot_interval(window) * stretch * amount)) + 1)


def seconds_until_slot(
    window: Window,
    bucket: TokenBucket,
    now: float,
    requests: int,
    *,
    stretch: float = 1.0,
    amount: int = 1,
) -> float:
    """Return the seconds until the last of `requests` requests may start, if these requests use every slot.

    Args:
        window: The limit.
        bucket: The current bucket.
        now: The current time by the store's clock.
        requests: The number of requests, at least 1.
        stretch: How many slots each request takes, at least 1.
        amount: How much of the limit each request uses.
    """
    first = next_slot_at(window, bucket, now, amount=amount)
    if not window.is_fixed:
        each = slot_interval(window) * stretch * amount
        last = max(bucket.next_at, now) - catch_up_seconds(window) + (requests - 1) * each
        return max(first, last) - now
    current = roll_over(window, bucket, now)
    amount = min(max(1, amount), window.amount)
    left = max(0, window.amount - current.used) // amount
    if requests <= left:
        return first - now
    opens_at = current.window_started_at + window.seconds + guard_seconds(window)
    return opens_at + (requests - left - 1) // (window.amount // amount) * window.seconds - now


def drop_burst(window: Window, bucket: TokenBucket, since: float) -> TokenBucket:
    """Return the bucket without the unused slots from before `since`, when nothing could start."""
    return replace(bucket, next_at=max(bucket.next_at, since + catch_up_seconds(window)))


def seconds_ahead(window: Window, bucket: TokenBucket, now: float) -> float:
    """Return in how many seconds the next slot of an evenly paced window is free; negative if it is past."""
    return bucket.next_at - catch_up_seconds(window) - now


def rescale_buckets(
    buckets: Mapping[str, TokenBucket], before: Iterable[Window], after: Iterable[Window], now: float
) -> dict[str, TokenBucket]:
    """Return the buckets after a change of limits.

    A faster rate also applies to slots that are already taken. So a limit of one an hour, set by mistake and
    corrected at once, does not delay requests for an hour.
    """
    slower = {window.name: window for window in before}
    rescaled = dict(buckets)
    for window in after:
        old, bucket = slower.get(window.name), buckets.get(window.name)
        if old is not None and bucket is not None:
            rescaled[window.name] = speed_up(bucket, slot_interval(window) / slot_interval(old), now)
    return rescaled


def speed_up(bucket: TokenBucket, ratio: float, now: float) -> TokenBucket:
    """Return the bucket with the wait for its next slot multiplied by `ratio`, if that shortens it."""
    ahead = bucket.next_at - now
    return replace(bucket, next_at=now + ahead * ratio) if ratio < 1 and ahead > 0 else bucket


def next_slot_in_all(
    windows: Iterable[Window], buckets: Mapping[str, TokenBucket], now: float, tokens: Tokens = NO_TOKENS
) -> float:
    """Return when a request with these tokens, which needs its part of each of these windows, may start."""
    return max(
        (
            next_slot_at(window, buckets.get(window.name, _NEW), now, amount=tokens.of(window.dimension))
            for window in windows
        ),
        default=now,
    )


def charge_all(
    windows: Iterable[Window],
    buckets: Mapping[str, TokenBucket],
    at: float,
    *,
    stretch: float = 1.0,
    tokens: Tokens = NO_TOKENS,
) -> dict[str, TokenBucket]:
    """Return the buckets of these windows after one request with these tokens that starts at `at`."""
    return {
        window.name: charge(
            window,
            buckets.get(window.name, _NEW),
            at,
            stretch=stretch,
            amount=tokens.of(window.dimension),
        )
        for window in windows
    }


def slot_interval(window: Window) -> float:
    """Return the seconds between two slots of an evenly paced window."""
    return window.seconds / window.amount


def call_interval(window: Window, tokens: Tokens) -> float:
    """Return the seconds between two calls that use these tokens each."""
    return slot_interval(window) * max(1, tokens.of(window.dimension))


def guard_seconds(window: Window) -> float:
    """Return the seconds around the edge of a fixed window in which a request counts for both windows."""
    return min(GUARD_LIMIT_SECONDS, window.seconds * GUARD_SHARE)


def used_requests(window: Window, bucket: TokenBucket, now: float) -> int | None:
    """Return the number of requests in the current fixed window; None for an evenly paced one."""
    return roll_over(window, bucket, now).used if window.is_fixed else None


def catch_up_seconds(window: Window) -> float:
    """Return how many seconds after its slot a request may still use the slot."""
    interval = slot_interval(window)
    return math.floor(CATCH_UP_SECONDS / interval) * interval


def window_start(window: Window, now: float) -> float:
    """Return the start of the fixed window that `now` is in.

    Shortly after an edge this is still the old window.
    """
    return math.floor((now - guard_seconds(window)) / window.seconds) * window.seconds


def roll_over(window: Window, bucket: TokenBucket, now: float) -> TokenBucket:
    """Return the bucket for the fixed window of `now`."""
    window_started_at = window_start(window, now)
    if window_started_at <= bucket.window_started_at:
        return bucket
    follows = window_started_at - bucket.window_started_at <= window.seconds * 1.5
    return TokenBucket(bucket.next_at, window_started_at, used=bucket.carried_over if follows else 0)


def _seconds_to_window_end(window: Window, bucket: TokenBucket, at: float) -> float:
    """Return the seconds from `at` to the end of the window; negative if `at` is after it."""
    return bucket.window_started_at + window.seconds - at


_NEW = TokenBucket()
