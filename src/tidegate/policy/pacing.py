"""When the next request may start: even pacing by GCRA, and windows counted from edge to edge.

A caller is given a moment, never a refusal: it starts then. Slots are handed out in order, so any number
of processes that share one meter keep one pace. GCRA: ATM Forum Traffic Management 4.0, section 4.4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.domain.upstream import Meter, Window

CATCH_UP_SECONDS = 0.5
"""Slots of so long ago may still be used, so that a late claim loses no quota. At least the newest one."""
GUARD_SHARE = 1 / 60
"""The part of a fixed window on either side of its edge that counts for both windows: clocks differ."""
GUARD_LIMIT_SECONDS = 60.0


def slot_at(window: Window, meter: Meter, now: float) -> float:
    """Return when the next request of a window may start: now, or later."""
    if not window.fixed:
        return max(now, meter.next_at - _catch_up(window))
    meter = _turned(window, meter, now)
    if meter.used < window.amount:
        return max(now, meter.edge_at + guard_seconds(window))  # the window may have turned for one to come
    return meter.edge_at + window.seconds + guard_seconds(window)


def charged(window: Window, meter: Meter, at: float, *, stretch: float = 1.0) -> Meter:
    """Return the meter after a request that starts `at`, a moment `slot_at` gave.

    Args:
        window: The limit.
        meter: What is used of it.
        at: When the request starts.
        stretch: How many slots it takes, ≥ 1: a pace of a tenth is a stretch of ten.
    """
    if not window.fixed:
        return replace(meter, next_at=max(meter.next_at, at) + interval(window) * stretch)
    meter = _turned(window, meter, at)
    is_near_edge = _to_edge(window, meter, at) <= guard_seconds(window)
    return replace(meter, used=meter.used + 1, carried=meter.carried + is_near_edge)


def slots_until(window: Window, meter: Meter, now: float, until: float, *, stretch: float = 1.0) -> int:
    """Return how many requests may start from `now` to `until`, a moment shortly after it.

    Args:
        window: The limit.
        meter: What is used of it.
        now: By the store's clock.
        until: The end of the look ahead, included.
        stretch: How many slots each request takes, ≥ 1.
    """
    if slot_at(window, meter, now) > until:
        return 0
    if window.fixed:
        return max(1, window.amount - _turned(window, meter, now).used)
    free_from = max(meter.next_at, now) - _catch_up(window)
    return max(1, math.floor((until - free_from) / (interval(window) * stretch)) + 1)


def seconds_for(window: Window, meter: Meter, now: float, requests: int, *, stretch: float = 1.0) -> float:
    """Return the seconds until the last of so many requests may start, all of the window's slots used.

    Args:
        window: The limit.
        meter: What is used of it.
        now: By the store's clock.
        requests: How many, at least 1.
        stretch: How many slots each request takes, ≥ 1.
    """
    first = slot_at(window, meter, now)
    if not window.fixed:
        last = max(meter.next_at, now) - _catch_up(window) + (requests - 1) * interval(window) * stretch
        return max(first, last) - now
    turned = _turned(window, meter, now)
    left = max(0, window.amount - turned.used)
    if requests <= left:
        return first - now
    opens_at = turned.edge_at + window.seconds + guard_seconds(window)
    return opens_at + (requests - left - 1) // window.amount * window.seconds - now


def without_burst(window: Window, meter: Meter, since: float) -> Meter:
    """Return the meter so that no slot from before `since`, when nothing could start, is used later."""
    return replace(meter, next_at=max(meter.next_at, since + _catch_up(window)))


def carried_over(
    meters: Mapping[str, Meter], before: Iterable[Window], after: Iterable[Window], now: float
) -> dict[str, Meter]:
    """Return the meters after limits were changed: as many slots are taken at a pace that is faster.

    Else a limit of one an hour, set by mistake and mended at once, would hold for the hour.
    """
    slower = {window.name: window for window in before}
    carried = dict(meters)
    for window in after:
        old, meter = slower.get(window.name), meters.get(window.name)
        if old is not None and meter is not None:
            carried[window.name] = sooner(meter, interval(window) / interval(old), now)
    return carried


def sooner(meter: Meter, ratio: float, now: float) -> Meter:
    """Return a meter whose next slot is nearer by this part; unchanged from 1 on, or if it is free."""
    ahead = meter.next_at - now
    return replace(meter, next_at=now + ahead * ratio) if ratio < 1 and ahead > 0 else meter


def slot_of_all(windows: Iterable[Window], meters: Mapping[str, Meter], now: float) -> float:
    """Return when a request may start that all these windows must let through."""
    return max((slot_at(window, meters.get(window.name, _NEW), now) for window in windows), default=now)


def charged_to_all(
    windows: Iterable[Window], meters: Mapping[str, Meter], at: float, *, stretch: float = 1.0
) -> dict[str, Meter]:
    """Return the meters of these windows after one request that starts `at`."""
    return {
        window.name: charged(window, meters.get(window.name, _NEW), at, stretch=stretch) for window in windows
    }


def interval(window: Window) -> float:
    """Return the seconds between two slots of an even pace."""
    return window.seconds / window.amount


def guard_seconds(window: Window) -> float:
    """Return how far around the edges of a fixed window requests count for both sides."""
    return min(GUARD_LIMIT_SECONDS, window.seconds * GUARD_SHARE)


def used_now(window: Window, meter: Meter, now: float) -> int | None:
    """Return the requests counted in the present window; None for a bucket, which counts none."""
    return _turned(window, meter, now).used if window.fixed else None


def _catch_up(window: Window) -> float:
    """Return how far behind its slots a request may still come."""
    pace = interval(window)
    return math.floor(CATCH_UP_SECONDS / pace) * pace


def edge_of(window: Window, now: float) -> float:
    """Return when the window began that `now` counts in: the old one until a guard past its edge."""
    return math.floor((now - guard_seconds(window)) / window.seconds) * window.seconds


def _turned(window: Window, meter: Meter, now: float) -> Meter:
    """Return the meter of the window that `now` counts in."""
    edge_at = edge_of(window, now)
    if edge_at <= meter.edge_at:
        return meter
    follows = edge_at - meter.edge_at <= window.seconds * 1.5
    return Meter(meter.next_at, edge_at, used=meter.carried if follows else 0)


def _to_edge(window: Window, meter: Meter, at: float) -> float:
    """Return how far before the edge at the window's end a moment is; negative: past it, within the guard."""
    return meter.edge_at + window.seconds - at


_NEW = Meter()
