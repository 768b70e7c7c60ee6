"""How long to wait before the next try."""

from __future__ import annotations

import random


class BackoffDelay:
    """Random pauses that grow with each failure, and are short again after a success.

    Source of the jitter: AWS Architecture Blog, "Exponential Backoff and Jitter" (full jitter).

    Args:
        rng: For jitter.
        first: Upper bound of the first pause, seconds.
        cap: Upper bound of every pause, seconds.
    """

    def __init__(self, rng: random.Random, *, first: float = 0.1, cap: float = 5.0) -> None:
        self._rng = rng
        self._first = first
        self._cap = cap
        self._failures = 0

    def next(self) -> float:
        """Return the next pause in seconds: at least a tenth of its bound."""
        bound = min(self._cap, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return bound * (0.1 + 0.9 * self._rng.random())

    def reset(self) -> None:
        """Start with short pauses again."""
        self._failures = 0
