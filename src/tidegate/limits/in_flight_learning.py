"""Learns how many runs an upstream can work on at once. Further runs would only wait longer.

A server of your own answers no 429 when it is full: its answers take longer. A longer time alone shows
nothing, because tasks differ. So two numbers of runs in flight are compared. A higher number is kept only if
completions per second rise with it, and a lower one if they hardly fall. An upstream with a rate limit needs
this only if it cannot keep up with the limit: when more runs are in flight and as many complete as before.

The runs in flight are not counted. By Little's law they are completions per second times seconds per run.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, InFlightLearning

FIRST_STEP = 2.0
"""At first the number is doubled, as long as completions rise with it."""
STEP = 1.5
"""Later the number is raised or lowered by this factor."""
WORTH = 0.3
"""Of two numbers of which one is 10% higher, the higher one must complete 3% more."""
LEAST_IN_FLIGHT = 4.0
"""A lower number than this is never tried."""
USED_SHARE = 0.8
"""If fewer runs than this share of the number are in flight, it limits nothing, and nothing is compared."""
SAME = 0.8
"""Completions per second are the same if their ratio is between this and its inverse."""
PACED_SHARE = 0.85
"""If completions per second reach this share of the rate limit, the limit binds."""
LEAST_SECONDS = 0.25
"""Nothing is learned from shorter runs: they spend most of their time between a claim and its end."""
FIRST_RUNS = 50
"""The first number is learned from this many runs."""
LEAST_RUNS = 100
"""At least this many runs are compared: completions of fewer differ by chance."""
LEAST_WINDOW_SECONDS = 1.0
WINDOW_RUNS = 1.5
"""A window is at least this many times as long as a run."""
HEADROOM = 1.05
"""The number that is kept is this much higher than the runs that were in flight, because those vary."""
HOLD_SECONDS = 10.0
"""After a try that was not worth it, the number stays for this long; twice as long after each further one."""
MOST_HOLD_SECONDS = 300.0


def count_runs(
    before: InFlightLearning, runs: int, seconds: float, now: float, *, allowed_per_second: float = math.inf
) -> InFlightLearning:
    """Return what is learned after some runs that succeeded.

    Args:
        before: What was known.
        runs: How many runs succeeded.
        seconds: How many seconds each took on average.
        now: The current time by the store's clock.
        allowed_per_second: How many runs a second the rate limits admit.
    """
    if before.window_starts_at == 0.0:
        return replace(before, window_starts_at=now)
    if now < before.window_starts_at:
        return before  # these runs began before the last change
    counted = replace(before, runs=before.runs + runs, run_seconds=before.run_seconds + runs * seconds)
    length, mean = now - counted.window_starts_at, counted.run_seconds / counted.runs
    least_runs = FIRST_RUNS if before.target is None else LEAST_RUNS
    if counted.runs < least_runs or length < max(LEAST_WINDOW_SECONDS, WINDOW_RUNS * mean):
        return counted
    known = replace(counted, seconds=mean, window_starts_at=now, runs=0, run_seconds=0.0)
    per_second = counted.runs / length
    if mean < LEAST_SECONDS or per_second >= PACED_SHARE * allowed_per_second:
        return replace(known, target=None, tries=0, level=per_second * mean, per_second=per_second)
    if known.target is None and allowed_per_second < math.inf:
        return _watch(known, per_second * mean, per_second, now)
    return _decide(known, per_second * mean, per_second, now)


def after_overload(before: InFlightLearning, now: float) -> InFlightLearning:
    """Return what is learned after the upstream said that it is overloaded: the number falls at once."""
    if before.target is None:
        return before
    return _changed(replace(before, held_until=now + HOLD_SECONDS), before.target / STEP, now, tries=0)


def _watch(known: InFlightLearning, in_flight: float, per_second: float, now: float) -> InFlightLearning:
    """Return what is learned of an upstream with a rate limit at the end of a window."""
    is_more = known.level > 0 and in_flight >= STEP * known.level
    if is_more and SAME <= per_second / known.per_second <= 1 / SAME:
        full = replace(known, has_met_limit=True, last_try=-1)
        return _changed(full, known.level * HEADROOM, now, tries=0)
    return replace(known, level=in_flight, per_second=per_second)


def _decide(known: InFlightLearning, in_flight: float, per_second: float, now: float) -> InFlightLearning:
    """Return what is learned at the end of a window with these runs in flight and completions per second."""
    if known.target is None:
        return _try(known, in_flight, per_second, now, tries=1)
    if in_flight < USED_SHARE * known.target:
        return replace(known, tries=0)
    if known.tries == 0:
        return (
            known
            if now < known.held_until
            else _try(known, in_flight, per_second, now, tries=-known.last_try)
        )
    gain, change = math.log(per_second / known.per_second), math.log(in_flight / known.level)
    if gain >= WORTH * (change if known.tries > 0 else min(0.0, change)):
        return _try(replace(known, hold_seconds=0.0), in_flight, per_second, now, tries=known.tries)
    hold = min(MOST_HOLD_SECONDS, max(HOLD_SECONDS, 2 * known.hold_seconds))
    held = replace(known, hold_seconds=hold, held_until=now + hold, has_met_limit=True)
    return _changed(held, known.level * HEADROOM, now, tries=0)


def _try(
    known: InFlightLearning, in_flight: float, per_second: float, now: float, *, tries: int
) -> InFlightLearning:
    """Return the learning with a higher number (`tries` is 1) or a lower one (-1) than in this window."""
    step = STEP if known.has_met_limit else FIRST_STEP
    compared = replace(known, level=in_flight, per_second=per_second, last_try=tries)
    return _changed(compared, in_flight * step if tries > 0 else in_flight / step, now, tries=tries)


def _changed(known: InFlightLearning, target: float, now: float, *, tries: int) -> InFlightLearning:
    """Return the learning with another number. Runs that began before are not counted."""
    return replace(
        known,
        target=max(LEAST_IN_FLIGHT, target),
        tries=tries,
        window_starts_at=now + known.seconds,
        runs=0,
        run_seconds=0.0,
    )


# --- what the number means for a gate --------------------------------------------------------------------


def free_in_flight(gate: Gate, limits: Limits, in_flight: int) -> int | None:
    """Return how many more runs may be in flight; None for any number.

    During a slow start, an upstream without a rate limit may have two more in flight for each success.
    """
    free: list[float] = []
    if limits.max_in_flight is not None:
        free.append(limits.max_in_flight - in_flight)
    if gate.in_flight.target is not None:
        free.append(int(gate.in_flight.target) - in_flight)
    if _ramps_by_successes(gate, limits):
        free.append(1 + 2 * gate.successes - in_flight)
    return max(0, int(min(free))) if free else None


def limits_in_flight(gate: Gate, limits: Limits) -> bool:
    """Whether runs and calls in flight must be counted for this gate."""
    is_limited = limits.max_in_flight is not None or gate.in_flight.target is not None
    return is_limited or _ramps_by_successes(gate, limits)


def _ramps_by_successes(gate: Gate, limits: Limits) -> bool:
    return gate.slow_start_at is not None and not any(not window.is_fixed for window in limits.windows)
