"""The maintenance job that advances maps. Any number of processes may run it at the same time."""

from __future__ import annotations

import logging
from dataclasses import asdict

import msgspec

from tidegate.codec.tags import CODEC
from tidegate.domain.final_hook import hook_task_id
from tidegate.domain.map_end import MapEnd
from tidegate.domain.spec import Priority
from tidegate.domain.text import counted
from tidegate.errors import StoreError
from tidegate.store.map_rows import MapCounts, MapRow
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask

log = logging.getLogger("tidegate.maps")

CANCEL_PAGE = 200
"""Items that are cancelled in one transaction."""
CURSOR_STEP = 500
"""The cursor of a map is stored when it has moved by this many items."""


class MapRunner:
    """Cancels the items of cancelled maps, and ends the maps whose items are all final.

    Each pass looks at the states of the items, so no event can be missed. If several processes find the same
    map complete, the store lets one of them end it.

    Args:
        store: Holds the maps.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._broken: set[str] = set()
        """Maps whose pass failed, each logged once."""
        self.changes = 0
        """How many maps this process has cancelled or ended."""

    async def run_once(self) -> bool:
        """Advance each open map. Return whether some map has more to do at once.

        Raises:
            StoreError: The store is unreachable.
        """
        has_more = False
        for row in await self._store.list_open_maps():
            try:
                has_more |= await self._advance(row)
                self._broken.discard(row.id)
            except StoreError:
                raise
            except Exception as error:  # one bad map must not stop the others
                if row.id not in self._broken:
                    self._broken.add(row.id)
                    log.exception("map %s cannot be advanced: %s", row.id, error)
        return has_more

    async def _advance(self, row: MapRow) -> bool:
        """Take the next step of a map. Return whether it has more to do at once."""
        if row.cancelled_at is not None or await self._cancel_if_too_many_died(row):
            after = await cancel_some(self._store, row.id, row.cancel_why, after=row.cursor - 1)
            if after is not None:
                return True
        position = await self._store.find_unfinished_item(row.id, row.cursor)
        if position is None and row.cursor:
            # An item before the cursor may have been redriven since.
            position = await self._store.find_unfinished_item(row.id)
        if position is None:
            await self._end(row)
        elif position < row.cursor or position >= row.cursor + CURSOR_STEP:
            await self._store.move_map_cursor(row.id, position)
        return False

    async def _cancel_if_too_many_died(self, row: MapRow) -> bool:
        if row.max_failures is None or await self._store.count_dead_items(row.id) <= row.max_failures:
            return False
        why = f"more than {counted(row.max_failures, 'item')} of the map died"
        if await self._store.cancel_map(row.id, why):
            self.changes += 1
            log.warning("map %s (%s): %s; cancelling the rest", row.id, row.name or row.function, why)
        return True

    async def _end(self, row: MapRow) -> None:
        counts = await self._store.count_map_items(row.id)
        if counts.unfinished:
            return  # redriven since
        callback = _callback(row, counts, await self._store.now())
        if await self._store.end_map(row.id, counts, callback):
            self.changes += 1
            log.info(
                "map %s (%s) has ended: %d succeeded, %d dead, %d cancelled",
                row.id, row.name or row.function, counts.succeeded, counts.dead, counts.cancelled,
            )  # fmt: skip


async def cancel_some(store: Store, map_id: str, why: str, *, after: int = -1) -> int | None:
    """Cancel a page of the unfinished items; return the last position, or None if it was the last page."""
    found = await store.list_cancellable_items(map_id, after=after, limit=CANCEL_PAGE)
    if found:
        await store.cancel([task_id for _, task_id in found], why=why)
    return found[-1][0] if len(found) == CANCEL_PAGE else None


def _callback(row: MapRow, counts: MapCounts, now: float) -> NewTask | None:
    """Return the task that follows a map; None if none does.

    The key of the callback makes sure that there is only one.
    """
    hook = row.on_complete
    if hook is None:
        return None
    end = MapEnd(
        row.id,
        row.name,
        row.function,
        row.tenant or None,
        row.items,
        counts.succeeded,
        counts.dead,
        counts.cancelled,
    )
    return NewTask(
        id=hook_task_id(row.id, 0, "done", now),
        function=hook.function,
        queue=hook.queue,
        priority=Priority(hook.priority),
        args=msgspec.json.encode({"a": [asdict(end)], "k": {}}),
        codec_tag=CODEC,
        upstream=hook.upstream,
        tenant=row.tenant,
        key=f"map:{row.id}:done",
        fingerprint=hook.function.encode(),
        on_final=hook.then,
    )
