"""Finds upstreams whose rate limit cannot be used up because the workers have too few slots."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidegate.domain.text import format_duration
from tidegate.limits.formatting import format_window
from tidegate.limits.settings import GateKind
from tidegate.limits.tokens import calls_per_second
from tidegate.limits.values import GateRow, is_key_gate

TOLERANCE = 0.9
"""Slots for this share of a limit are enough, because the time of a run is an estimate."""


@dataclass(frozen=True, slots=True)
class SlotShortage:
    """An upstream whose limit cannot be used up because too few of its tasks run at once."""

    upstream: str
    limit: str
    """The limit for people: `600 in 1 min`."""
    run_seconds: float
    """How long a run took recently, on average."""
    needed: int
    """The slots needed to use the whole limit: runs per second × seconds per run."""
    slots: int
    """The slots of the live workers that serve the queues of the upstream's tasks."""

    @property
    def description(self) -> str:
        """What is wrong, in one sentence."""
        return (
            f"upstream {self.upstream}: {self.limit} need {self.needed} tasks at once, because a run took"
            f" {format_duration(self.run_seconds)} recently; the live workers that serve it have"
            f" {self.slots}"
            f" {'slot' if self.slots == 1 else 'slots'}, so about {self.slots / self.needed:.0%} of the limit"
            " can be used"
        )

    @property
    def fix(self) -> str:
        """What to do about the shortage."""
        return f"raise concurrency, processes or workers to {self.needed} slots in total"


def find_slot_shortages(gates: Iterable[GateRow], slots: Mapping[str, int]) -> list[SlotShortage]:
    """Return the upstreams whose workers have too few slots, sorted by name.

    Args:
        gates: Every gate in the store.
        slots: The slots of the live workers that serve an upstream's tasks, by upstream. Upstreams without
            slots, and upstreams without a successful run yet, are left out of the result.
    """
    found = []
    for row in gates:
        available = slots.get(row.name, 0)
        if (
            row.kind is not GateKind.UPSTREAM
            or is_key_gate(row.name)
            or not available
            or not row.limits.windows
        ):
            continue
        if row.gate.learned_rate.counted_at == 0:
            continue
        rates = [(calls_per_second(window, row.gate), window) for window in row.limits.windows]
        rate, window = min(rates, key=lambda each: each[0])
        needed = math.ceil(row.gate.typical_seconds * rate)
        if row.limits.max_in_flight is not None:
            needed = min(needed, row.limits.max_in_flight)
        if available < TOLERANCE * needed:
            size = format_window(window)
            found.append(SlotShortage(row.name, size, row.gate.typical_seconds, needed, available))
    return sorted(found, key=lambda shortage: shortage.upstream)


def slots_by_upstream(
    queues: Mapping[str, Collection[str]], workers: Iterable[tuple[Collection[str], int]]
) -> dict[str, int]:
    """Return the slots of the workers that serve each upstream's tasks.

    Args:
        queues: The queues of an upstream's tasks, by upstream.
        workers: For each live worker, the queues it serves (`*` for any) and its slots.
    """
    every = list(workers)
    return {
        upstream: sum(slots for served, slots in every if "*" in served or set(served) & set(names))
        for upstream, names in queues.items()
    }
