"""`ChargedBucket`: one window's bucket while a claim charges it, task by task.

It decides as `token_bucket` does. A claim charges up to hundreds of tasks, so it computes what does not
change once, and makes no new value for each task.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.limits import token_bucket
from tidegate.limits.values import TokenBucket

_ROUNDING_SECONDS = 0.001


class ChargedBucket:
    """The bucket of one window, which changes with each charge.

    Args:
        window: The limit.
        bucket: The bucket before.
        stretch: How many slots each request takes, at least 1.
    """

    __slots__ = (
        "_bucket", "_catch_up", "_charged", "_guard", "_interval", "_near_edge", "_next_at", "_rolls_at",
        "is_charged", "window",
    )  # fmt: skip

    def __init__(self, window: Window, bucket: TokenBucket, stretch: float = 1.0) -> None:
        self.window = window
        self._bucket = bucket
        self._charged = 0
        self._near_edge = 0
        self._next_at = bucket.next_at
        self._catch_up = token_bucket.catch_up_seconds(window)
        self._interval = token_bucket.slot_interval(window) * stretch
        self._guard = token_bucket.guard_seconds(window)
        self._rolls_at = 0.0
        self.is_charged = False
        """Whether a request was charged."""

    @property
    def bucket(self) -> TokenBucket:
        """The bucket after the charges so far."""
        bucket = self._bucket
        if not self._charged:
            return bucket
        if not self.window.is_fixed:
            return replace(bucket, next_at=self._next_at, used=bucket.used + self._charged)
        return replace(
            bucket, used=bucket.used + self._charged, carried_over=bucket.carried_over + self._near_edge
        )

    def next_slot_at(self, now: float, amount: int = 1) -> float:
        """Return when the next request of this amount may start: now, or later."""
        if not self.window.is_fixed:
            return max(now, self._next_at - self._catch_up)
        bucket = self._bucket if now < self._rolls_at else self._roll_over(now)
        opens_at = bucket.window_started_at + self._guard
        if bucket.used + self._charged + min(amount, self.window.amount) > self.window.amount:
            opens_at += self.window.seconds
        return max(now, opens_at)

    def charge(self, at: float, amount: int = 1) -> None:
        """Charge a request of this amount that starts at `at`, a time that `next_slot_at` returned."""
        if not self.window.is_fixed:
            self._next_at = max(self._next_at, at) + self._interval * amount
        else:
            bucket = self._bucket if at < self._rolls_at else self._roll_over(at)
            if bucket.window_started_at + self.window.seconds - at <= self._guard:
                self._near_edge += amount
        self._charged += amount
        self.is_charged = True

    def _roll_over(self, now: float) -> TokenBucket:
        """Return the bucket, with the charges so far, for the fixed window of `now`."""
        self._bucket = bucket = token_bucket.roll_over(self.window, self.bucket, now)
        self._charged = self._near_edge = 0
        seconds = self.window.seconds
        ends_at = (math.floor(bucket.window_started_at / seconds) + 1) * seconds
        self._rolls_at = ends_at + self._guard - _ROUNDING_SECONDS
        return bucket
