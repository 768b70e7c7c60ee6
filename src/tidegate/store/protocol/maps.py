"""The part of the store contract for maps: many tasks that were enqueued as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.store.map_rows import MapCounts, MapItemRow, MapResultRow, MapRow, NewMap
from tidegate.store.rows import NewTask


class Maps(Protocol):
    """Maps, and the items of each. Counts come from the states of the tasks."""

    async def enqueue_map_part(self, map_id: str, batch_id: str, tasks: Sequence[NewTask]) -> None:
        """Do what `enqueue_part` does with items of a map: they get the next positions, from 0."""

    async def commit_map(self, new: NewMap, batch_id: str | None) -> MapRow:
        """Store a map and make the items of its batch visible, in one transaction; return the stored map.

        If another map of the tenant has the key, that map is returned and nothing changes. Safe to repeat.

        Args:
            new: The map.
            batch_id: The batch of its items; None: it has no items.

        Raises:
            WrongStateError: There is no such batch: it was dropped, or expired after a day.
        """

    async def get_map(self, map_id: str) -> MapRow | None:
        """Return the map with this id; None if it does not exist."""

    async def find_map(self, tenant: str, key: str) -> MapRow | None:
        """Return the tenant's map with this key; None if there is none."""

    async def list_maps(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[MapRow]:
        """Return maps, the latest first, starting after the id `after`."""

    async def find_map_ids(self, smallest: str, largest: str, *, tenant: str | None = None) -> list[str]:
        """Return at most two ids of maps from `smallest` to `largest`."""

    async def list_open_maps(self) -> list[MapRow]:
        """Return the maps that have not ended."""

    async def count_map_items(self, map_id: str, *, since_seconds: float = 0.0) -> MapCounts:
        """Count the items of a map by state; items whose tasks were deleted count as they ended.

        Args:
            map_id: The map.
            since_seconds: `recent` counts the items that became final in this time until now.
        """

    async def count_dead_items(self, map_id: str) -> int:
        """Return how many items are dead. This is faster than counting all items."""

    async def find_unfinished_item(self, map_id: str, position: int = 0) -> int | None:
        """Return the position of the first item that is not final, from a position on; None if all are."""

    async def list_cancellable_items(
        self, map_id: str, *, after: int = -1, limit: int = 500
    ) -> list[tuple[int, str]]:
        """Return (position, task id) of items that are neither final nor asked to stop."""

    async def list_map_items(self, map_id: str, *, after: int = -1, limit: int = 100) -> list[MapItemRow]:
        """Return the items in order, starting after a position."""

    async def list_map_results(self, task_ids: Sequence[str]) -> list[MapResultRow]:
        """Return the results of those of these items that are final, in no order."""

    async def list_dead_items(self, map_id: str, *, after: int = -1, limit: int = 500) -> list[MapItemRow]:
        """Return the dead items in order, starting after a position."""

    async def move_map_cursor(self, map_id: str, position: int) -> None:
        """Store that all items before a position were found final."""

    async def cancel_map(self, map_id: str, why: str) -> bool:
        """Have maintenance cancel the unfinished items; return False if the map has ended or is cancelled."""

    async def end_map(self, map_id: str, counts: MapCounts, callback: NewTask | None) -> bool:
        """Record that all items are final, and enqueue the task that follows, in one transaction.

        Returns False, and changes nothing, if that is recorded already.
        """

    async def delete_old_maps(self, kept_seconds: float, limit: int = 100) -> int:
        """Delete maps that ended longer ago than this and have no task any more; return how many."""
