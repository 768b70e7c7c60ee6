"""`app.admin.maps`."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime

from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.readers import whole_option
from tidegate.domain.states import State
from tidegate.maps.progress import MapProgress, read_progress
from tidegate.operations import maps
from tidegate.store.map_rows import MapRow
from tidegate.threads.bridge import run_sync


@dataclass(frozen=True, slots=True)
class MapStatus:
    """A map, without the counts of its items."""

    map_id: str
    name: str
    """As given to `map`; empty without a name."""
    function: str
    tenant: str | None
    key: str | None
    items: int
    max_failures: int | None
    created_at: datetime
    cancelled_at: datetime | None
    """When the cancel of the map's items began."""
    cancel_why: str
    ended_at: datetime | None
    """When all items were first found final."""
    callback_id: str | None
    """The task of `on_complete`; None before the map has ended, and without a callback."""


@dataclass(frozen=True, slots=True)
class MapItem:
    """One item of a map."""

    index: int
    task_id: str
    state: State
    reason: str
    """Of the failure of a dead item; empty for others."""


class MapAdmin:
    """List and follow maps, cancel one, and retry its dead items. Ids may be short."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> builtins.list[MapStatus]:
        """Return maps, the latest first.

        Args:
            tenant: Only this tenant's; None: all.
            after: The last id of the page before.
            limit: 1 to 1,000.

        Raises:
            OptionError: A value is invalid.
            MapNotFoundError: No map has the id `after`.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        store = await self._source.opened_store()
        last = None if after is None else (await maps.get_map(store, after)).id
        return [map_status(row) for row in await store.list_maps(tenant=tenant, after=last, limit=limit)]

    def list_sync(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> builtins.list[MapStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(tenant=tenant, after=after, limit=limit))

    async def get(self, map_id: str) -> MapStatus:
        """Return one map.

        Raises:
            MapNotFoundError: No map has this id.
        """
        return map_status(await maps.get_map(await self._source.opened_store(), map_id))

    def get_sync(self, map_id: str) -> MapStatus:
        """Same as `get`, from sync code."""
        return run_sync(self.get(map_id))

    async def progress(self, map_id: str) -> MapProgress:
        """Return how many items of a map are in each kind of state.

        Raises:
            MapNotFoundError: No map has this id.
        """
        store = await self._source.opened_store()
        return await read_progress(store, await maps.get_map(store, map_id))

    def progress_sync(self, map_id: str) -> MapProgress:
        """Same as `progress`, from sync code."""
        return run_sync(self.progress(map_id))

    async def items(
        self, map_id: str, *, after: int | None = None, limit: int = 100
    ) -> builtins.list[MapItem]:
        """Return items of a map in their order. Items whose tasks were deleted are left out.

        Args:
            map_id: The map.
            after: The last index of the page before.
            limit: 1 to 1,000.

        Raises:
            OptionError: A value is invalid.
            MapNotFoundError: No map has this id.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        start = -1 if after is None else whole_option("after", after, least=0)
        store = await self._source.opened_store()
        row = await maps.get_map(store, map_id)
        return [MapItem(*item) for item in await store.list_map_items(row.id, after=start, limit=limit)]

    def items_sync(
        self, map_id: str, *, after: int | None = None, limit: int = 100
    ) -> builtins.list[MapItem]:
        """Same as `items`, from sync code."""
        return run_sync(self.items(map_id, after=after, limit=limit))

    async def cancel(self, map_id: str, *, why: str = "") -> bool:
        """Cancel every unfinished item; return False if the map has ended or is being cancelled already.

        Raises:
            MapNotFoundError: No map has this id.
        """
        store = await self._source.opened_store()
        return await maps.cancel_map(store, (await maps.get_map(store, map_id)).id, why)

    def cancel_sync(self, map_id: str, *, why: str = "") -> bool:
        """Same as `cancel`, from sync code."""
        return run_sync(self.cancel(map_id, why=why))

    async def retry_failed(self, map_id: str, *, repeat_doubts: bool = False) -> int:
        """Send the dead items back to the main queue with fresh counters; return how many were sent.

        Args:
            map_id: The map.
            repeat_doubts: Also send items whose last call may have been processed.

        Raises:
            NotAcceptedError: The map is being cancelled.
            MapNotFoundError: No map has this id.
        """
        store = await self._source.opened_store()
        row = await maps.get_map(store, map_id)
        return (await maps.retry_failed(store, row.id, repeat_doubts=repeat_doubts))[0]

    def retry_failed_sync(self, map_id: str, *, repeat_doubts: bool = False) -> int:
        """Same as `retry_failed`, from sync code."""
        return run_sync(self.retry_failed(map_id, repeat_doubts=repeat_doubts))


def map_status(row: MapRow) -> MapStatus:
    """Return a stored map as people see it."""
    return MapStatus(
        row.id,
        row.name,
        row.function,
        row.tenant or None,
        row.key,
        row.items,
        row.max_failures,
        to_datetime(row.created_at),
        to_datetime_or_none(row.cancelled_at),
        row.cancel_why,
        to_datetime_or_none(row.ended_at),
        row.callback_id,
    )
