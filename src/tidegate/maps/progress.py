"""The progress of a map, and an estimate of when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.map_rows import MapCounts, MapRow
from tidegate.store.protocol import Store

RATE_SECONDS = 600.0
"""The rate of an estimate is that of the last ten minutes, or of the map's life if it is younger."""


@dataclass(frozen=True, slots=True)
class MapProgress:
    """How far a map is, from one snapshot of its tasks."""

    items: int
    succeeded: int
    dead: int
    cancelled: int
    running: int
    waiting: int
    """Items that are neither running nor final: ready, scheduled, retrying or held."""
    seconds_left: float | None
    """Time until the last item ends, at the rate of the last ten minutes; 0 if all items are final, None if
    none ended in that time."""

    @property
    def final(self) -> int:
        """How many items are final."""
        return self.succeeded + self.dead + self.cancelled

    @property
    def is_complete(self) -> bool:
        """Whether all items are final."""
        return self.running + self.waiting == 0


async def read_progress(store: Store, row: MapRow) -> MapProgress:
    """Return the progress of a map now."""
    counts = await store.count_map_items(row.id, since_seconds=RATE_SECONDS)
    return to_progress(row, counts, await store.now())


def to_progress(row: MapRow, counts: MapCounts, now: float) -> MapProgress:
    """Return the progress of a map, given the counts of its items at a moment."""
    return MapProgress(
        row.items,
        counts.succeeded,
        counts.dead,
        counts.cancelled,
        counts.running,
        counts.unfinished - counts.running,
        seconds_left(counts.unfinished, counts.recent, min(RATE_SECONDS, now - row.created_at)),
    )


def seconds_left(unfinished: int, recent: int, seconds: float) -> float | None:
    """Return when the last item ends if the rate stays; None if there is no rate.

    Args:
        unfinished: Items that are not final.
        recent: Items that became final in the time `seconds`.
        seconds: The length of that time.
    """
    if unfinished == 0:
        return 0.0
    return unfinished * max(seconds, 0.001) / recent if recent else None
