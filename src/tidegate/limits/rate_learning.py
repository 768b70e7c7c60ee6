"""Learns the rate of an upstream that answers 429 although nobody set a limit for a minute or less.

Each 429 halves the learned rate; the first one halves the rate of recent successes. The rate then doubles
every minute, and after ten minutes it is forgotten. So the rate swings around the real limit, with a few 429s
a minute instead of a burst whenever the gate opens. The rate is computed from the time of the last 429, so
its growth needs no write.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.limits.values import Gate, GateState, LearnedRate

LEARNED_RATE = "learned_rate"
"""The name of the learned window and of its bucket."""
DOUBLING_SECONDS = 60.0
MEMORY_SECONDS = 600.0
"""How long after the last 429 the rate still applies. By then it has doubled ten times and limits nothing."""
COUNTED_SECONDS = 30.0
"""The weight of a success decays with its age: to about a third after this time."""
FORGOTTEN_SECONDS = 4 * COUNTED_SECONDS
"""After this long without a success, the count restarts."""
LEAST_PER_SECOND = 1 / 60
TRICKLE_PER_SECOND = 2 / 3
"""The lowest rate of successes that counts: a lower rate shows a low demand, not the limit."""
SAME_SECONDS = 1.0
"""A 429 within this time of the last one, or within a run's typical time, was caused by the old rate and does
not halve the rate again."""


def count_successes(learned_rate: LearnedRate, successes: int, now: float) -> LearnedRate:
    """Return the learned rate after successful runs."""
    return replace(
        learned_rate,
        successes_per_second=_decayed_successes(learned_rate, now) + successes / COUNTED_SECONDS,
        counted_at=max(now, learned_rate.counted_at),
        count_started_at=now
        if now - learned_rate.counted_at > FORGOTTEN_SECONDS
        else learned_rate.count_started_at,
    )


def slow_down(gate: Gate, now: float) -> Gate:
    """Return the gate after a 429, with half its rate if the gate flowed.

    If no run succeeded recently, there is no rate to halve.
    """
    learned_rate = gate.learned_rate
    is_same = learned_rate.slowed_at is not None and now - learned_rate.slowed_at < max(
        SAME_SECONDS, gate.typical_seconds
    )
    if is_same or gate.state is not GateState.FLOWING:
        return gate
    rates = [rate for rate in (per_second(learned_rate, now), _recent_per_second(learned_rate, now)) if rate]
    if not rates:
        return gate
    slower = max(LEAST_PER_SECOND, min(rates) / 2)
    return replace(gate, learned_rate=replace(learned_rate, per_second=slower, slowed_at=now))


def per_second(learned_rate: LearnedRate, now: float) -> float | None:
    """Return how many calls per second may start now; None for any number."""
    if (
        learned_rate.per_second is None
        or learned_rate.slowed_at is None
        or now - learned_rate.slowed_at > MEMORY_SECONDS
    ):
        return None
    return float(learned_rate.per_second * 2 ** (max(0.0, now - learned_rate.slowed_at) / DOUBLING_SECONDS))


def window(learned_rate: LearnedRate, now: float) -> Window | None:
    """Return the learned rate as a window; None if there is no learned rate."""
    rate = per_second(learned_rate, now)
    return None if rate is None else Window(LEARNED_RATE, 1, 1 / rate)


def _recent_per_second(learned_rate: LearnedRate, now: float) -> float:
    """Return how many runs per second succeeded recently: `TRICKLE_PER_SECOND` at least, or 0 for none.

    A young count is averaged over its own age.
    """
    if now - learned_rate.counted_at > FORGOTTEN_SECONDS:
        return 0.0
    age = max(SAME_SECONDS, now - learned_rate.count_started_at)
    return max(
        TRICKLE_PER_SECOND, _decayed_successes(learned_rate, now) / (1 - math.exp(-age / COUNTED_SECONDS))
    )


def _decayed_successes(learned_rate: LearnedRate, now: float) -> float:
    return learned_rate.successes_per_second * math.exp(
        -max(0.0, now - learned_rate.counted_at) / COUNTED_SECONDS
    )
