"""Computes the wait before the next attempt from a backoff, jitter and the wait that a server named."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.domain.spec import Backoff, Exponential, Fixed, Jitter, Polynomial

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Rng = Random | Callable[[], float]

JITTER = 0.2
"""With `Jitter.NARROW` a delay is drawn uniformly from 1 − JITTER to 1 + JITTER times the plan."""
_SPREADS = {
    Jitter.NARROW: (1 - JITTER, 1 + JITTER),
    Jitter.EQUAL: (0.5, 1.0),
    Jitter.FULL: (0.0, 1.0),
    Jitter.NONE: (1.0, 1.0),
}
LARGEST_SPREAD_SECONDS = 60.0
"""The most that jitter adds to a wait that the server named."""
LONGEST_DELAY_SECONDS = 365 * 86_400.0
"""A longer plan is cut to this, so that a due time can always be stored."""


def delay_seconds(backoff: Backoff, attempt: int, rng: Rng) -> float:
    """Return the seconds to wait after the failed attempt, including jitter.

    Jitter is applied after the cap, so that tasks that have reached the cap still spread out: a cap of 600 s
    gives 480 to 720 s, unless the plan sets another `Jitter`.

    Args:
        backoff: The plan.
        attempt: The number of the failed attempt, from 1. Smaller numbers count as 1.
        rng: The source of the jitter: a `Random`, or a function that returns a number in [0, 1).
    """
    least, most = _SPREADS[backoff.jitter]
    return _planned(backoff, max(1, attempt)) * (least + (most - least) * _draw(rng))


def with_floor(delay: float, floor: float | None, rng: Rng) -> float:
    """Return the delay, raised to the wait that a server named, plus jitter.

    A delay above the floor stays as it is. A smaller delay becomes the floor plus up to a fifth of it, at
    most `LARGEST_SPREAD_SECONDS`. So no task runs earlier than the server asked, and the tasks do not all run
    together.

    Args:
        delay: Seconds from `delay_seconds`.
        floor: Seconds that the server named; None if it named no wait.
        rng: The source of the jitter, as for `delay_seconds`.
    """
    if floor is None or delay > floor:
        return delay
    return floor + min(JITTER * floor, LARGEST_SPREAD_SECONDS) * _draw(rng)


def _planned(backoff: Backoff, attempt: int) -> float:
    if isinstance(backoff, Exponential) and backoff.base == 0:
        return 0.0  # even if the power would overflow
    try:
        plan = _formula(backoff, attempt)
    except OverflowError:
        plan = LONGEST_DELAY_SECONDS if isinstance(backoff, Fixed) else backoff.cap
    return min(max(0.0, plan), LONGEST_DELAY_SECONDS)


def _formula(backoff: Backoff, attempt: int) -> float:
    match backoff:
        case Exponential(base=base, cap=cap, factor=factor):
            return min(base * float(factor) ** (attempt - 1), cap)
        case Polynomial(power=power, plus=plus, cap=cap):
            return min(float(float(attempt) ** power) + plus, cap)
        case Fixed(seconds=seconds):
            return float(seconds)
        case _:
            assert_never(backoff)


def _draw(rng: Rng) -> float:
    draw: Callable[[], float] = rng if callable(rng) else rng.random
    return min(max(0.0, float(draw())), 1.0)
