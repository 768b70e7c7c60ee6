"""The pace of an upstream that answers 429 while nobody gave it a limit for a minute or less.

Each time, half of what went well lately, or of the pace it had; doubled in a minute, then forgotten. So it
swings about the real limit, with a few 429s a minute instead of a burst of them whenever the gate opens.
All from the moment of the last 429: to grow costs no write.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.spec import Window
from tidegate.limits.values import Gate, GateState, LearnedRate

LEARNED_RATE = "learned_pace"
"""Of the window, in buckets and in words."""
DOUBLING_SECONDS = 60.0
MEMORY_SECONDS = 600.0
"""So long after the last 429 the pace is ten times doubled, and no limit any more."""
COUNTED_SECONDS = 30.0
"""Runs that went well count the less, the longer ago: a third after so long."""
FORGOTTEN_SECONDS = 4 * COUNTED_SECONDS
"""After so long without any the count begins anew."""
LEAST_PER_SECOND = 1 / 60
TRICKLE_PER_SECOND = 2 / 3
"""Fewer that went well lately say what was asked for, not what may be: they count as so many."""
SAME_SECONDS = 1.0
"""429s so soon after one, or within a run's typical time, were earned by the pace before."""


def count_successes(learned_rate: LearnedRate, successes: int, now: float) -> LearnedRate:
    """Return the pace after runs that went well."""
    return replace(
        learned_rate,
        successes_per_second=_decayed_successes(learned_rate, now) + successes / COUNTED_SECONDS,
        counted_at=max(now, learned_rate.counted_at),
        count_started_at=now
        if now - learned_rate.counted_at > FORGOTTEN_SECONDS
        else learned_rate.count_started_at,
    )


def slow_down(gate: Gate, now: float) -> Gate:
    """Return a gate that flowed until a 429, at half the pace it had.

    Where nothing went well lately there is nothing to halve.
    """
    learned_rate = gate.learned_rate
    is_same = learned_rate.slowed_at is not None and now - learned_rate.slowed_at < max(
        SAME_SECONDS, gate.typical_seconds
    )
    if is_same or gate.state is not GateState.FLOWING:
        return gate
    had = [rate for rate in (per_second(learned_rate, now), _recent_per_second(learned_rate, now)) if rate]
    if not had:
        return gate
    slower = max(LEAST_PER_SECOND, min(had) / 2)
    return replace(gate, learned_rate=replace(learned_rate, per_second=slower, slowed_at=now))


def per_second(learned_rate: LearnedRate, now: float) -> float | None:
    """Return how many calls a second may start now; None: any number."""
    if (
        learned_rate.per_second is None
        or learned_rate.slowed_at is None
        or now - learned_rate.slowed_at > MEMORY_SECONDS
    ):
        return None
    return float(learned_rate.per_second * 2 ** (max(0.0, now - learned_rate.slowed_at) / DOUBLING_SECONDS))


def window(learned_rate: LearnedRate, now: float) -> Window | None:
    """Return the pace as a limit; None: there is none."""
    rate = per_second(learned_rate, now)
    return None if rate is None else Window(LEARNED_RATE, 1, 1 / rate)


def _recent_per_second(learned_rate: LearnedRate, now: float) -> float:
    """Return how many runs a second went well lately, a trickle at least; 0: none did.

    In a young count over the time it has had.
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
