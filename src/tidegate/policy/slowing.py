"""The pace of an upstream that answers 429 while nobody gave it a limit for a minute or less.

Each time, half of what went well lately, or of the pace it had; doubled in a minute, then forgotten. So it
swings about the real limit, with a few 429s a minute instead of a burst of them whenever the gate opens.
All from the moment of the last 429: to grow costs no write.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.upstream import Gate, GateState, Pace, Window

NAME = "learned_pace"
"""Of the window, in meters and in words."""
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


def counted(pace: Pace, goods: int, now: float) -> Pace:
    """Return the pace after runs that went well."""
    return replace(
        pace,
        goods_per_second=_counted(pace, now) + goods / COUNTED_SECONDS,
        counted_at=max(now, pace.counted_at),
        counting_at=now if now - pace.counted_at > FORGOTTEN_SECONDS else pace.counting_at,
    )


def slowed(gate: Gate, now: float) -> Gate:
    """Return a gate that flowed until a 429, at half the pace it had.

    Where nothing went well lately there is nothing to halve.
    """
    pace = gate.pace
    is_same = pace.slowed_at is not None and now - pace.slowed_at < max(SAME_SECONDS, gate.typical_seconds)
    if is_same or gate.state is not GateState.FLOWING:
        return gate
    had = [rate for rate in (per_second(pace, now), _lately(pace, now)) if rate]
    if not had:
        return gate
    slower = max(LEAST_PER_SECOND, min(had) / 2)
    return replace(gate, pace=replace(pace, per_second=slower, slowed_at=now))


def per_second(pace: Pace, now: float) -> float | None:
    """Return how many calls a second may start now; None: any number."""
    if pace.per_second is None or pace.slowed_at is None or now - pace.slowed_at > MEMORY_SECONDS:
        return None
    return float(pace.per_second * 2 ** (max(0.0, now - pace.slowed_at) / DOUBLING_SECONDS))


def window(pace: Pace, now: float) -> Window | None:
    """Return the pace as a limit; None: there is none."""
    rate = per_second(pace, now)
    return None if rate is None else Window(NAME, 1, 1 / rate)


def _lately(pace: Pace, now: float) -> float:
    """Return how many runs a second went well lately, a trickle at least; 0: none did.

    In a young count over the time it has had.
    """
    if now - pace.counted_at > FORGOTTEN_SECONDS:
        return 0.0
    age = max(SAME_SECONDS, now - pace.counting_at)
    return max(TRICKLE_PER_SECOND, _counted(pace, now) / (1 - math.exp(-age / COUNTED_SECONDS)))


def _counted(pace: Pace, now: float) -> float:
    return pace.goods_per_second * math.exp(-max(0.0, now - pace.counted_at) / COUNTED_SECONDS)
