"""Deaths of muted groups of failures, which the rule about surges of deaths leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tidegate.policy.failure_state import FailureState, muted_state
from tidegate.policy.surge import Window
from tidegate.store.failure_rows import MarkKind
from tidegate.store.protocol import Store


async def read_muted_groups(store: Store, now: float) -> frozenset[str]:
    """Return the fingerprints of the groups of failures that are muted now."""
    return frozenset(
        mark.fingerprint
        for mark in await store.list_failure_marks()
        if mark.kind is MarkKind.MUTED and muted_state(mark.until_at, now) is FailureState.MUTED
    )


async def count_muted_deaths(
    store: Store, muted: Collection[str], since: float, until: float
) -> Counter[str]:
    """Return how many tasks died of muted failures in a range, by queue.

    Without muted groups, nothing is read.
    """
    if not muted:
        return Counter()
    counts = await store.count_windows([Window(int(since // 60), int(until // 60) + 1)])
    sums: Counter[str] = Counter()
    for row in counts.deaths:
        if row.fingerprint in muted:
            sums[row.queue] += row.deaths
    return sums
