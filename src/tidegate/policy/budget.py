"""The retry budget: how many re-runs an upstream and the whole system may spend, and when the next may go.

Enforced where tasks go from retry to main. In every window of its length at most its amount leaves. A part
is kept for those somebody waits for and for last attempts; everyone else must pass the narrower meter too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.upstream import GateKind, GateRow, Limits, Meter, Window
from tidegate.policy import pacing

SYSTEM_RETRIES_PER_MINUTE = 600.0
SHARE_OF_REQUESTS = 0.2
"""The part of an upstream's requests per minute that re-runs may be, unless it says otherwise."""
RESERVED = 0.2
"""The part of a budget kept for interactive tasks and last attempts."""

ALL = "retries"
PLAIN = "retries_plain"
COUNT = "retries_counted"
"""Names of the meters."""


def per_minute(row: GateRow) -> float | None:
    """Return the re-runs a minute a gate allows; None: it has no budget of its own."""
    if row.limits.retries_per_minute is not None:
        return row.limits.retries_per_minute
    if row.kind is GateKind.SYSTEM:
        return SYSTEM_RETRIES_PER_MINUTE
    requests = row.limits.window("requests_per_minute")
    return None if requests is None else SHARE_OF_REQUESTS * requests.amount


def carried_over(before: GateRow, after: GateRow, now: float) -> dict[str, Meter]:
    """Return the meters after limits were changed: as many re-runs are spent at the new pace, if faster."""
    ratio = quickened(before, after)
    nearer = {
        name: pacing.sooner(meter, ratio, now) for name, meter in after.meters.items() if name in _PACED
    }
    return {**after.meters, **nearer}


def quickened(before: GateRow, after: GateRow) -> float:
    """Return by which part re-runs follow each other sooner: below 1 if faster, 1 if not; 0: at once."""
    old, new = per_minute(before), per_minute(after)
    if old is None:
        return 1.0
    if new is None:
        return 0.0
    return min(1.0, _pace(new, after.limits).seconds / _pace(old, before.limits).seconds)


class Budget:
    """The budget of one gate during one promotion: admits re-runs and charges them.

    Args:
        row: The gate as stored; it must have a budget.
        now: By the store's clock.
    """

    def __init__(self, row: GateRow, now: float) -> None:
        self._row = row
        self._now = now
        self._meters: dict[str, Meter] = dict(row.meters)
        rate = per_minute(row)
        assert rate is not None
        self._all, self._plain = _pace(rate, row.limits), _pace(rate * (1 - RESERVED), row.limits)
        self._held: dict[bool, int] = {}

    @property
    def row(self) -> GateRow:
        """The gate after what was admitted so far."""
        return replace(self._row, meters=self._meters)

    @property
    def is_changed(self) -> bool:
        """Whether the row must be written."""
        return self._meters != self._row.meters

    def wait(self, *, urgent: bool) -> float:
        """Return in how many seconds the next re-run of this kind may go; 0: now."""
        meters = [(ALL, self._all)] if urgent else [(ALL, self._all), (PLAIN, self._plain)]
        return max(pace.wait(self._meters.get(name, _NEW), self._now) for name, pace in meters)

    def spend(self, *, urgent: bool) -> None:
        """Charge one re-run that may go now."""
        for name, pace in [(ALL, self._all), *([] if urgent else [(PLAIN, self._plain)])]:
            self._meters[name] = pace.charged(self._meters.get(name, _NEW), self._now)
        counter = count_window(self._row.limits)
        self._meters[COUNT] = pacing.charged(counter, self._meters.get(COUNT, _NEW), self._now)

    def put_off(self, *, urgent: bool) -> float:
        """Return in how many seconds to ask again for one that may not go: each one slot after the last."""
        place = self._held.get(urgent, 0)
        self._held[urgent] = place + 1
        pace = self._all if urgent else self._plain
        return max(self.wait(urgent=urgent), pace.seconds) + place * pace.seconds


class _Pace:
    """GCRA with a burst of a tenth: `burst` at once, then one in `seconds`, never more than the amount."""

    def __init__(self, amount: float, window_seconds: float) -> None:
        self.burst = max(1, math.floor(amount / 10))
        # Any half-open window holds burst + (amount - burst) of them.
        self.seconds = window_seconds / max(amount - self.burst + 1, _LEAST)

    def wait(self, meter: Meter, now: float) -> float:
        return max(0.0, meter.next_at - (self.burst - 1) * self.seconds - now)

    def charged(self, meter: Meter, now: float) -> Meter:
        return replace(meter, next_at=max(meter.next_at, now) + self.seconds)


def _pace(rate: float, limits: Limits) -> _Pace:
    return _Pace(rate * limits.retry_window_seconds / 60.0, limits.retry_window_seconds)


def count_window(limits: Limits) -> Window:
    """Return the window in which spent re-runs are counted for people to see."""
    return Window(COUNT, amount=_UNCOUNTABLE, seconds=limits.retry_window_seconds, fixed=True)


def used(row: GateRow, now: float) -> int:
    """Return the re-runs spent in the present window."""
    counter = count_window(row.limits)
    return pacing.used_now(counter, row.meters.get(COUNT, _NEW), now) or 0


def counted_since(row: GateRow, now: float) -> float:
    """Return when the window began that `used` counts: windows follow each other edge to edge."""
    return pacing.edge_of(count_window(row.limits), now)


_NEW = Meter()
_PACED = (ALL, PLAIN)
_LEAST = 1e-6
_UNCOUNTABLE = 10**9
