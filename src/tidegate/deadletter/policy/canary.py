"""Chooses how many letters of each function and tenant are sent first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tidegate.store.operation_rows import Stratum

LEAST = 5
SHARE = 0.01
"""The share of the letters that are in the canary; at least `LEAST` letters are."""


def canary_size(letters: int) -> int:
    """Return how many of this many letters are in the canary."""
    return min(letters, max(LEAST, math.ceil(letters * SHARE)))


def pick_canary(strata: Sequence[Stratum]) -> list[Stratum]:
    """Return how many letters of each function and tenant the canary gets.

    Each pair of function and tenant gets one letter while there are enough, the largest pair first. The other
    letters are divided in proportion, by the largest remainder.
    """
    letters = sum(stratum.letters for stratum in strata)
    size = canary_size(letters)
    largest_first = sorted(strata, key=lambda each: (-each.letters, each.function, each.tenant))
    picked = {(each.function, each.tenant): 1 for each in largest_first[:size]}
    left = size - len(picked)
    if left:
        more = letters - len(picked)
        shares = {
            (each.function, each.tenant): left * (each.letters - 1) / more for each in largest_first if more
        }
        for key, share in shares.items():
            picked[key] += math.floor(share)
        by_remainder = sorted(shares, key=lambda key: (math.floor(shares[key]) - shares[key], key))
        for key in by_remainder[: size - sum(picked.values())]:
            picked[key] += 1
    return [
        replace(each, letters=picked[each.function, each.tenant])
        for each in largest_first
        if (each.function, each.tenant) in picked
    ]
