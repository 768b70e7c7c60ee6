"""The retry budget: how many retries an upstream and the whole system may spend, and when the next may go.

The budget is enforced when tasks move from `retrying` to `ready`: in each window at most its amount of tasks
may move. A part is reserved for interactive tasks and last attempts; all other retries must pass a second,
narrower bucket. Bulk redrives spend the same budget through a third bucket of half its rate.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.limits import token_bucket
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import GateRow, TokenBucket

SYSTEM_RETRIES_PER_MINUTE = 600.0
RETRY_SHARE_OF_REQUESTS = 0.2
"""The default budget of an upstream, as a share of its requests per minute."""
RESERVED_SHARE = 0.2
"""The share of a budget that is reserved for interactive tasks and last attempts."""
REDRIVE_SHARE = 0.5
"""The largest share of a budget that bulk redrives may spend."""

ALL = "retries"
PLAIN = "retries_plain"
REDRIVEN = "redrives"
COUNT = "retries_counted"
"""The names of the buckets of a retry budget."""


def per_minute(row: GateRow) -> float | None:
    """Return how many retries a gate allows per minute; None if it has no budget of its own."""
    if row.limits.retries_per_minute is not None:
        return row.limits.retries_per_minute
    if row.kind is GateKind.SYSTEM:
        return SYSTEM_RETRIES_PER_MINUTE
    requests = row.limits.window("requests_per_minute")
    return None if requests is None else RETRY_SHARE_OF_REQUESTS * requests.amount


def rescale_buckets(before: GateRow, after: GateRow, now: float) -> dict[str, TokenBucket]:
    """Return the buckets after a change of limits.

    A faster rate also applies to retries that are already charged.
    """
    ratio = speed_up_ratio(before, after)
    rescaled = {
        name: token_bucket.speed_up(bucket, ratio, now)
        for name, bucket in after.buckets.items()
        if name in _RATE_BUCKETS
    }
    return {**after.buckets, **rescaled}


def speed_up_ratio(before: GateRow, after: GateRow) -> float:
    """Return the factor for the time between retries: below 1 if they get faster, else 1; 0 for no limit."""
    old, new = per_minute(before), per_minute(after)
    if old is None:
        return 1.0
    if new is None:
        return 0.0
    return min(1.0, _retry_rate(new, after.limits).seconds / _retry_rate(old, before.limits).seconds)


class RetryBudget:
    """The budget of one gate during one promotion: admits retries and charges them.

    Args:
        row: The gate's row. The row must have a budget.
        now: The current time by the store's clock.
    """

    def __init__(self, row: GateRow, now: float) -> None:
        self._row = row
        self._now = now
        self._buckets: dict[str, TokenBucket] = dict(row.buckets)
        rate = per_minute(row)
        assert rate is not None
        self._all, self._plain, self._redriven = (
            _retry_rate(rate, row.limits),
            _retry_rate(rate * (1 - RESERVED_SHARE), row.limits),
            _retry_rate(rate * REDRIVE_SHARE, row.limits),
        )
        self._postponed: dict[bool, int] = {}

    @property
    def row(self) -> GateRow:
        """The gate's row after the retries admitted so far."""
        return replace(self._row, buckets=self._buckets)

    @property
    def is_changed(self) -> bool:
        """Whether the store must write the row."""
        return self._buckets != self._row.buckets

    def wait(self, *, urgent: bool) -> float:
        """Return the seconds until the next retry of this kind may go; 0 for now."""
        buckets = [(ALL, self._all)] if urgent else [(ALL, self._all), (PLAIN, self._plain)]
        return max(rate.wait(self._buckets.get(name, _NEW), self._now) for name, rate in buckets)

    def spend(self, *, urgent: bool) -> None:
        """Charge one retry that may go now."""
        for name, rate in [(ALL, self._all), *([] if urgent else [(PLAIN, self._plain)])]:
            self._buckets[name] = rate.charged(self._buckets.get(name, _NEW), self._now)
        counter = count_window(self._row.limits)
        self._buckets[COUNT] = token_bucket.charge(counter, self._buckets.get(COUNT, _NEW), self._now)

    def redrive_wait(self) -> float:
        """Return the seconds until the next bulk redrive may go; 0 for now.

        Half of the burst of the other buckets stays for retries that become due in the meantime.
        """
        shared = [(ALL, self._all.with_half_burst()), (PLAIN, self._plain.with_half_burst())]
        buckets = [*shared, (REDRIVEN, self._redriven)]
        return max(rate.wait(self._buckets.get(name, _NEW), self._now) for name, rate in buckets)

    def spend_redrive(self) -> None:
        """Charge one redrive that may go now. A redrive counts as a retry too."""
        self.spend(urgent=False)
        self._buckets[REDRIVEN] = self._redriven.charged(self._buckets.get(REDRIVEN, _NEW), self._now)

    def postpone(self, *, urgent: bool) -> float:
        """Return the seconds until a retry that may not go now should ask again.

        Each postponed retry gets a slot one interval after the previous one.
        """
        position = self._postponed.get(urgent, 0)
        self._postponed[urgent] = position + 1
        rate = self._all if urgent else self._plain
        return max(self.wait(urgent=urgent), rate.seconds) + position * rate.seconds


class _RetryRate:
    """GCRA with a burst of a tenth of the amount: `burst` retries at once, then one every `seconds`."""

    def __init__(self, amount: float, window_seconds: float) -> None:
        self.burst = max(1, math.floor(amount / 10))
        # Any half-open window contains at most burst + (amount - burst) retries: the amount.
        self.seconds = window_seconds / max(amount - self.burst + 1, _LEAST)

    def with_half_burst(self) -> _RetryRate:
        """Return the same rate with half the burst."""
        half = copy(self)
        half.burst = max(1, self.burst // 2)
        return half

    def wait(self, bucket: TokenBucket, now: float) -> float:
        return max(0.0, bucket.next_at - (self.burst - 1) * self.seconds - now)

    def charged(self, bucket: TokenBucket, now: float) -> TokenBucket:
        return replace(bucket, next_at=max(bucket.next_at, now) + self.seconds)


def _retry_rate(rate: float, limits: Limits) -> _RetryRate:
    return _RetryRate(rate * limits.retry_window_seconds / 60.0, limits.retry_window_seconds)


def count_window(limits: Limits) -> Window:
    """Return the window in which spent retries are counted for display."""
    return Window(COUNT, amount=_UNCOUNTABLE, seconds=limits.retry_window_seconds, is_fixed=True)


def used_retries(row: GateRow, now: float) -> int:
    """Return the number of retries spent in the current window."""
    counter = count_window(row.limits)
    return token_bucket.used_requests(counter, row.buckets.get(COUNT, _NEW), now) or 0


def count_window_started_at(row: GateRow, now: float) -> float:
    """Return when the current window of `used_retries` began. The windows are fixed and do not overlap."""
    return token_bucket.window_start(count_window(row.limits), now)


_NEW = TokenBucket()
_RATE_BUCKETS = (ALL, PLAIN, REDRIVEN)
_LEAST = 1e-6
_UNCOUNTABLE = 10**9
