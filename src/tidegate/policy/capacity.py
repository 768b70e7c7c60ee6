"""Whether the workers have slots enough to use what an upstream's rate limit allows. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate.domain.durations import format_duration
from tidegate.limits import token_bucket
from tidegate.limits.settings import GateKind
from tidegate.limits.values import GateRow, is_key_gate

TOLERANCE = 0.9
"""Slots for this part of a limit are enough: how long a run takes is an estimate."""


@dataclass(frozen=True, slots=True)
class SlotShortage:
    """An upstream whose limit cannot be used up, since too few of its tasks run at once."""

    upstream: str
    limit: str
    """Which, in words: `600 in 1 min`."""
    run_seconds: float
    """How long a run took lately, in the mean."""
    needed: int
    """Slots to use the limit up: runs a second × seconds a run."""
    slots: int
    """Those of the live workers that serve the queues of its tasks."""

    @property
    def words(self) -> str:
        """What is wrong, in a sentence."""
        return (
            f"upstream {self.upstream}: {self.limit} need {self.needed} tasks at once, as a run took"
            f" {format_duration(self.run_seconds)} lately, and the live workers that serve it have"
            f" {self.slots}"
            f" {'slot' if self.slots == 1 else 'slots'}: about {self.slots / self.needed:.0%} of the limit"
            " can be used"
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return f"raise concurrency, processes or workers to {self.needed} slots in all"


def find_slot_shortages(gates: Iterable[GateRow], slots: Mapping[str, int]) -> list[SlotShortage]:
    """Return the upstreams whose workers have too few slots, by name.

    Args:
        gates: Every gate the store keeps.
        slots: By upstream, those of the live workers that serve its tasks. One that is left out, or has
            none, is not judged, nor one of which no run went well yet.
    """
    found = []
    for row in gates:
        have = slots.get(row.name, 0)
        if row.kind is not GateKind.UPSTREAM or is_key_gate(row.name) or not have or not row.limits.windows:
            continue
        if row.gate.learned_rate.counted_at == 0:
            continue
        window = max(row.limits.windows, key=token_bucket.slot_interval)
        needed = math.ceil(row.gate.typical_seconds / token_bucket.slot_interval(window))
        if row.limits.max_in_flight is not None:
            needed = min(needed, row.limits.max_in_flight)
        if have < TOLERANCE * needed:
            size = f"{window.amount} in {format_duration(window.seconds)}"
            found.append(SlotShortage(row.name, size, row.gate.typical_seconds, needed, have))
    return sorted(found, key=lambda shortage: shortage.upstream)


def slots_by_upstream(
    queues: Mapping[str, Collection[str]], workers: Iterable[tuple[Collection[str], int]]
) -> dict[str, int]:
    """Return the slots of the workers that serve each upstream's tasks.

    Args:
        queues: Of its tasks, by upstream.
        workers: The queues each live worker serves (`*` for any), and its slots.
    """
    every = list(workers)
    return {
        upstream: sum(slots for served, slots in every if "*" in served or set(served) & set(names))
        for upstream, names in queues.items()
    }
