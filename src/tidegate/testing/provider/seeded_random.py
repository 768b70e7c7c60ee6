"""Seeded chance, the same whatever order concurrent calls arrive in."""

from __future__ import annotations

import random
from collections import Counter


class SeededRandom:
    """Deals each call a random source of its own, made from the seed, its content, and which time it is.

    One shared source would make a run depend on which of two concurrent calls came first.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._times: Counter[str] = Counter()

    def random_for(self, content_hash: str) -> random.Random:
        """Return the source for the next call with this content."""
        self._times[content_hash] += 1
        return random.Random(f"{self._seed} {content_hash} {self._times[content_hash]}")
