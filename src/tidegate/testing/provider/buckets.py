"""Requests-per-minute and tokens-per-minute limits, as buckets that refill continuously.

Pure arithmetic over a clock that is passed in. Other modules decide how a shortage is worded and sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Monotonic = Callable[[], float]
Dimension = Literal["requests", "tokens"]

# A caller that waits exactly the stated time must be admitted, in spite of rounding.
_ROUNDING = 1e-6


class RefillingBucket:
    """A bucket that holds `capacity` units and gains `limit` units per `window_seconds`, without steps.

    Args:
        limit: Units gained in one window, > 0.
        window_seconds: Length of the window, > 0.
        burst: Units the full bucket holds; None: as many as `limit`.
        level: Units in it at the start, cut to what it can hold; None: full.
        monotonic: Seconds on any clock that never goes back.
    """

    def __init__(
        self,
        *,
        limit: float,
        window_seconds: float,
        burst: float | None = None,
        level: float | None = None,
        monotonic: Monotonic,
    ) -> None:
        self.limit = limit
        self.capacity = limit if burst is None else burst
        self._per_second = limit / window_seconds
        self._level = self.capacity if level is None else min(level, self.capacity)
        self._monotonic = monotonic
        self._read_at = monotonic()

    @property
    def level(self) -> float:
        """Units in the bucket now."""
        now = self._monotonic()
        gained = max(0.0, now - self._read_at) * self._per_second
        self._level = min(self.capacity, self._level + gained)
        self._read_at = now
        return self._level

    def wait_seconds(self, amount: float) -> float:
        """Return the time until `amount` units are there; infinite if the bucket can never hold them."""
        if amount > self.capacity:
            return math.inf
        lacking = amount - self.level
        return 0.0 if lacking <= _ROUNDING else lacking / self._per_second

    def take(self, amount: float) -> None:
        """Take `amount` units, which `wait_seconds` said are there."""
        self._level = max(0.0, self.level - amount)

    def reset_seconds(self) -> float:
        """Return the time until the bucket is full: what providers call the reset."""
        return max(0.0, self.capacity - self.level) / self._per_second


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """Why the provider refused a call."""

    dimension: Dimension
    limit: int
    """Units per window; or, when the wait is infinite, all that the bucket can ever hold."""
    used: int
    """Units of the limit that are not there now."""
    requested: int
    wait_seconds: float
    """Until the same call would pass, if nobody else calls; infinite: never."""


class AccountLimits:
    """Both limits of one account. A dimension without a limit is None and lets everything through."""

    def __init__(self, *, requests: RefillingBucket | None, tokens: RefillingBucket | None) -> None:
        self.requests = requests
        self.tokens = tokens

    def admit(self, tokens: int) -> LimitExceeded | None:
        """Take one request and `tokens` tokens, or take nothing and say what is short.

        If two limits are exceeded, the one with the longer wait is named. Waiting for it satisfies both.
        """
        wanted = [("requests", self.requests, 1), ("tokens", self.tokens, tokens)]
        exceeded_limits = [
            _limit_exceeded(name, bucket, amount)
            for name, bucket, amount in wanted
            if bucket is not None and bucket.wait_seconds(amount) > 0
        ]
        if exceeded_limits:
            return max(exceeded_limits, key=lambda exceeded: exceeded.wait_seconds)
        for _, bucket, amount in wanted:
            if bucket is not None:
                bucket.take(amount)
        return None


def _limit_exceeded(name: str, bucket: RefillingBucket, amount: int) -> LimitExceeded:
    wait = bucket.wait_seconds(amount)
    return LimitExceeded(
        dimension="requests" if name == "requests" else "tokens",
        limit=math.floor(bucket.capacity if math.isinf(wait) else bucket.limit),
        used=max(0, math.ceil(bucket.limit - bucket.level - _ROUNDING)),
        requested=amount,
        wait_seconds=wait,
    )
