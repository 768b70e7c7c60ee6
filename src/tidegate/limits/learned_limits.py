"""Learns limits from response headers: when an exhausted limit opens, and which rate the other limits allow.

Most providers refill a limit evenly, and their "reset" is the time until the limit is full. Others count in
fixed windows and restore the whole limit at the reset. Headers do not state which kind it is. The limit, the
remaining amount and the reset of one response show it: the three either fit an even refill or not. Each
process does this arithmetic by its own clock, and the store by the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits import rate_learning
from tidegate.limits.gate import MAX_PARK_JITTER_SECONDS, MAX_PARK_SECONDS, PARK_JITTER
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, LearnedLimit, ObservedLimit

MAX_RESET_SECONDS = 32 * 86_400.0
"""A reset further away than this is ignored, because it was probably misread."""
MINUTE, DAY = 60.0, 86_400.0
SCARCE_SHARE = 0.5
"""When the remaining share of a limit falls to this, the limit becomes scarce and calls are paced."""
AMPLE_SHARE = 0.9
"""When the remaining share of a scarce limit rises above this, the limit is no longer scarce."""
RESERVE_SHARE = 0.01
"""Calls are paced so that this share of a scarce limit stays unused."""
SHOWN = "shown_"
"""The names of windows that headers show begin with this, since a declared window may have the same name."""
MEMORY_SECONDS = 60.0
"""How long the remaining amount of a response sets a rate: after a minute the limit is full again."""
STALE_SECONDS = 10.0
"""The greatest age of the stored limits that people see, while responses arrive."""

_ROUNDING_SECONDS = 1.0
_ROUNDING_SHARE = 0.05
_MEAN_OF = 5


def merge_observed(
    before: Iterable[LearnedLimit], observed: Iterable[ObservedLimit], now: float
) -> tuple[LearnedLimit, ...]:
    """Return the learned limits after these responses.

    A response changes nothing if a response to a later call is already known.
    """
    known = {limit.dimension: limit for limit in before}
    for each in observed:
        dimension, sent_at = each.seen.dimension, now - each.sent_seconds_ago
        old = known.get(dimension)
        if old is None or sent_at >= old.sent_at:
            known[dimension] = _merge_one(old, each, sent_at=sent_at, seen_at=now - each.seen_seconds_ago)
    return tuple(known[dimension] for dimension in Dimension if dimension in known)


def is_worth_sharing(before: LearnedLimit | None, after: LearnedLimit) -> bool:
    """Whether other processes must know the change. A smaller remaining amount alone need not be shared."""
    if before is None or after.seen_at - before.seen_at > STALE_SECONDS:
        return True
    return after.opens_at != before.opens_at or _lasting_facts(after) != _lasting_facts(before)


def exhausted_limit(learned: Iterable[LearnedLimit], now: float) -> LearnedLimit | None:
    """Return the exhausted limit that opens last; None if no limit is exhausted."""
    shut = [limit for limit in learned if limit.opens_at is not None and limit.opens_at > now]
    return max(shut, key=_opens_at, default=None)


def next_call_at(learned: Iterable[LearnedLimit], now: float) -> float:
    """Return when exhausted limits allow the next call: now, or later."""
    shut = exhausted_limit(learned, now)
    return now if shut is None else _opens_at(shut)


def exhausted_until(learned: Iterable[LearnedLimit]) -> float:
    """Return when the last exhausted limit opens or opened; 0 if none was exhausted."""
    return max(map(_opens_at, learned), default=0.0)


def learned_rate_since(learned: Iterable[LearnedLimit]) -> float:
    """Return the send time of the call whose response sets the learned rate; 0 if there is no such rate."""
    return max((limit.sent_at for limit in learned if limit.is_scarce), default=0.0)


def with_learned_rates(limits: Limits, gate: Gate, now: float) -> Limits:
    """Return the limits with the rates learned from headers and 429s added.

    All of them hold together, so a declared limit is a ceiling.
    """
    learned_windows = [_learned_window(limit, now) for limit in gate.learned_limits]
    learned_windows.append(rate_learning.window(gate.learned_rate, now))
    found = [window for window in learned_windows if window is not None]
    return replace(limits, windows=(*limits.windows, *found)) if found else limits


def shown_per_second(learned: Iterable[LearnedLimit], now: float) -> float | None:
    """Return how many calls per second the limits in headers allow in the long run; None if none is known."""
    rates = [
        limit.limit / limit.needs / limit.window_seconds
        for limit in learned
        if limit.limit is not None
        and limit.window_seconds == MINUTE
        and now - limit.seen_at <= MEMORY_SECONDS
        and (limit.dimension is Dimension.REQUESTS or limit.needs > 1)
    ]
    return min(rates, default=None)


def windows_above_observed(limits: Limits, learned: Iterable[LearnedLimit]) -> list[tuple[Window, float]]:
    """Return the windows that allow more than the limit in the headers, each with that limit.

    Many providers do not state the window of their limit. Such a window is taken to be a minute, as most
    providers document it.
    """
    return [
        (window, limit.limit)
        for limit in learned
        for window in limits.windows
        if limit.dimension is window.dimension
        and limit.limit is not None
        and window.seconds == (limit.window_seconds or MINUTE)
        and limit.limit < window.amount
    ]


def _merge_one(
    old: LearnedLimit | None, observed: ObservedLimit, *, sent_at: float, seen_at: float
) -> LearnedLimit:
    seen = observed.seen
    needs = max(1.0, observed.needs)
    old = old or LearnedLimit(seen.dimension, needs=needs)
    limit = old.limit if seen.limit is None else seen.limit
    window, refills_evenly = _window_and_refill(old, replace(seen, limit=limit))
    fresh = replace(
        old,
        limit=limit,
        window_seconds=window,
        refills_evenly=refills_evenly,
        needs=old.needs + (needs - old.needs) / _MEAN_OF,
        seen_at=seen_at,
        sent_at=sent_at,
    )
    if seen.remaining is None:
        return fresh
    fresh = replace(fresh, remaining=seen.remaining, is_scarce=_is_scarce(old, limit, seen.remaining))
    wait = _wait_seconds(fresh, seen, needs)
    if wait is None:
        return fresh
    jitter = min(PARK_JITTER * wait, MAX_PARK_JITTER_SECONDS) * observed.jitter
    return replace(fresh, opens_at=seen_at + wait + jitter if wait > 0 else None)


def _wait_seconds(limit: LearnedLimit, seen: HeaderLimit, needs: float) -> float | None:
    """Return the seconds until the limit has room for one more call; None if the response shows nothing."""
    remaining, reset = seen.remaining or 0.0, seen.reset_seconds
    missing = (needs if limit.limit is None else min(needs, limit.limit)) - remaining
    if missing <= 0:
        return 0.0
    if reset is None or reset > MAX_RESET_SECONDS:
        return None
    if limit.refills_evenly and limit.limit and limit.window_seconds:
        reset = min(reset, missing * limit.window_seconds / limit.limit)
    return min(reset, MAX_PARK_SECONDS)


def _window_and_refill(old: LearnedLimit, seen: HeaderLimit) -> tuple[float | None, bool]:
    """Return the window of a limit in seconds (None if unknown), and whether it refills evenly."""
    named = seen.window_seconds
    if not seen.limit or seen.remaining is None or seen.reset_seconds is None:
        return named or old.window_seconds, old.refills_evenly
    used = seen.limit - seen.remaining
    is_conclusive = used >= 1 and (seen.remaining >= 1 or old.remaining is None)
    if not is_conclusive:
        return named or old.window_seconds, old.refills_evenly
    for window in (named,) if named else (MINUTE, DAY):
        if _fits_even_refill(used, window / seen.limit, seen.reset_seconds):
            return window, True
    return named, False


def _fits_even_refill(used: float, seconds_each: float, reset: float) -> bool:
    """Whether an evenly refilled limit that lacks `used` is full again at the reset.

    `used` may be rounded up by one. For a limit that refills slowly, one used call fits nearly any reset. So
    a reset much earlier than the refill of one call counts as the reset of a shorter window.
    """
    most = used * seconds_each
    if used <= 1 and seconds_each > MINUTE and reset < seconds_each / 2:
        return False
    rounding = max(_ROUNDING_SECONDS, _ROUNDING_SHARE * most)
    return most - seconds_each - rounding <= reset <= most + rounding


def _is_scarce(old: LearnedLimit, limit: float | None, remaining: float) -> bool:
    if limit is None:
        return False
    return remaining <= limit * (AMPLE_SHARE if old.is_scarce else SCARCE_SHARE)


def _learned_window(limit: LearnedLimit, now: float) -> Window | None:
    """Return the rate at which the remaining amount, plus the refill, lasts a minute.

    A hundredth of the limit is kept as a reserve, because calls do not arrive as evenly as they start.
    """
    if limit.limit is None or limit.window_seconds != MINUTE or not limit.is_scarce:
        return None
    if now - limit.seen_at > MEMORY_SECONDS:
        return None
    if limit.dimension is not Dimension.REQUESTS and limit.needs <= 1:
        return None  # the cost of a call is unknown
    spare = (limit.remaining or 0.0) - RESERVE_SHARE * limit.limit
    calls = (limit.limit + spare) / limit.needs
    return Window(f"{SHOWN}{limit.dimension}_per_minute", max(1, int(calls)), MINUTE)


def _lasting_facts(limit: LearnedLimit) -> tuple[float | None, float | None, bool, bool]:
    return limit.limit, limit.window_seconds, limit.refills_evenly, limit.is_scarce


def _opens_at(limit: LearnedLimit) -> float:
    return limit.opens_at or 0.0
