"""Types of the bodies about maps, and how the store's rows fill them."""

from __future__ import annotations

import msgspec

from tidegate.maps.progress import MapProgress
from tidegate.store.map_rows import MapItemRow, MapRow
from tidegate.web.request_schemas import AskedPriority


class MapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One map to enqueue."""

    task: str
    """Name of the task function: `module:function`, or only the last part if no other function has it."""
    items: list[msgspec.Raw]
    """The argument of one task in each item."""
    name: str | None = None
    """Shown to people; need not be unique."""
    key: str | None = None
    """Idempotency key: as long as the map is stored, the same key and items return the same map. The header
    Idempotency-Key may have it instead."""
    max_failures: int | None = None
    """If more items than this are dead, the rest is cancelled."""
    on_complete: str | None = None
    """Name of a task function that gets a task when all items are final. The argument of the callback
    describes the end of the map."""
    labels: dict[str, str] | None = None
    """A few names and values to find the items by."""
    queue: str | None = None
    """For operators and admins only, like the next two fields."""
    priority: AskedPriority = None
    max_attempts: int | None = None
    """Charged attempts before an item is dead."""


class CancelMapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to cancel a map."""

    why: str = ""
    """Kept in the history of each item."""


class RetryMapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to retry the dead items of a map."""

    repeat_doubts: bool = False
    """Also send items whose last call may have been processed."""


class MapOut(msgspec.Struct):
    """A map, without the counts of its items."""

    map_id: str
    name: str
    """Empty without a name."""
    function: str
    tenant: str | None
    items: int
    max_failures: int | None
    created_at: float
    cancelled_at: float | None
    """When the cancel of the map's items began."""
    cancel_why: str
    ended_at: float | None
    """When all items were first found final."""
    callback_task_id: str | None
    """The task of `on_complete`, once the map has ended."""


class MapPage(msgspec.Struct):
    """Maps, the latest first."""

    maps: list[MapOut]
    next: str | None
    """The `after` of the next page; null on the last one."""


class MapStatusOut(msgspec.Struct):
    """A map with the counts of its items."""

    map: MapOut
    succeeded: int
    dead: int
    cancelled: int
    running: int
    waiting: int
    """Items that are neither running nor final."""
    seconds_left: float | None
    """Until the last item ends, at the rate of the last ten minutes; null if no item ended in that time."""


class EnqueuedMapOut(msgspec.Struct):
    """A map that was enqueued."""

    map_id: str
    created: bool
    """False: a map with the same key and items existed."""
    url: str


class RetriedMapOut(msgspec.Struct):
    """What a retry of dead items did."""

    map_id: str
    sent: int
    """Items that were sent back to the main queue."""
    in_doubt: int
    """Items that stay dead because their last call may have been processed."""


class MapItemOut(msgspec.Struct):
    """One item of a map."""

    index: int
    task_id: str
    state: str
    reason: str | None
    """Of the failure of a dead item."""


class MapItemPage(msgspec.Struct):
    """Items of a map, in order. Items whose tasks were deleted are left out."""

    items: list[MapItemOut]
    next: int | None
    """The `after` of the next page; null on the last one."""


def to_map_out(row: MapRow) -> MapOut:
    """Return the response body of a map."""
    return MapOut(
        row.id,
        row.name,
        row.function,
        row.tenant or None,
        row.items,
        row.max_failures,
        row.created_at,
        row.cancelled_at,
        row.cancel_why,
        row.ended_at,
        row.callback_id,
    )


def to_map_status_out(row: MapRow, progress: MapProgress) -> MapStatusOut:
    """Return the response body of a map and its progress."""
    return MapStatusOut(
        to_map_out(row),
        progress.succeeded,
        progress.dead,
        progress.cancelled,
        progress.running,
        progress.waiting,
        progress.seconds_left,
    )


def to_map_item_out(row: MapItemRow) -> MapItemOut:
    """Return the response body of an item."""
    return MapItemOut(row.position, row.task_id, str(row.state), row.reason or None)
