"""Find, cancel and retry maps, for people and for programs."""

from __future__ import annotations

from tidegate.domain.ids import id_or_none, id_range
from tidegate.domain.readers import shown
from tidegate.errors import MapNotFoundError, NotAcceptedError, OptionError
from tidegate.maps.runner import cancel_some
from tidegate.operations.doubts import repeat_open
from tidegate.store.map_rows import MapRow
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus

RETRY_PAGE = 200
"""Items that are redriven in one transaction."""


async def get_map(store: Store, map_id: str, *, tenant: str | None = None) -> MapRow:
    """Return a map by its id or the first digits of it.

    Args:
        store: Where it is.
        map_id: A full or a short id.
        tenant: Whose map it must be; None: any tenant's.

    Raises:
        MapNotFoundError: There is no such map, or it belongs to another tenant.
        OptionError: The short id matches several maps.
    """
    found = id_or_none(map_id) or await _full_id(store, map_id, tenant)
    row = None if found is None else await store.get_map(found)
    if row is None or tenant not in (None, row.tenant):
        raise MapNotFoundError(
            f"no map has the id {shown(map_id)}", fix="`tidegate maps ls` lists them", map_id=map_id
        )
    return row


async def cancel_map(store: Store, map_id: str, why: str = "") -> bool:
    """Cancel every unfinished item of a map; running ones are asked to stop.

    Maintenance finishes what this call does not. Returns False if the map has ended or is being cancelled.
    """
    is_first = await store.cancel_map(map_id, why)
    if is_first:
        after: int | None = -1
        while after is not None:
            after = await cancel_some(store, map_id, why, after=after)
    return is_first


async def retry_failed(store: Store, map_id: str, *, repeat_doubts: bool = False) -> tuple[int, int]:
    """Redrive the dead items of a map; return how many were sent, and how many were left because of doubts.

    Args:
        store: Where it is.
        map_id: The map.
        repeat_doubts: Also send items whose calls may have been processed.

    Raises:
        NotAcceptedError: The map is being cancelled, and would cancel them again.
    """
    row = await get_map(store, map_id)
    if row.cancelled_at is not None and row.ended_at is None:
        raise NotAcceptedError(
            f"map {row.id} is being cancelled", fix="wait until it has ended, then retry its dead items"
        )
    sent, doubts, after = 0, 0, -1
    while page := await store.list_dead_items(row.id, after=after, limit=RETRY_PAGE):
        after = page[-1].position
        in_doubt = set(await store.find_letters_in_doubt([item.task_id for item in page]))
        if repeat_doubts and in_doubt:
            await repeat_open(store, sorted(in_doubt), by=f"retry of map {row.id}")
            in_doubt = set()
        chosen = [item.task_id for item in page if item.task_id not in in_doubt]
        doubts += len(in_doubt)
        if chosen:
            statuses = await store.redrive(chosen)
            sent += list(statuses.values()).count(ActionStatus.DONE)
    return sent, doubts


async def _full_id(store: Store, text: str, tenant: str | None) -> str | None:
    bounds = id_range(text)
    if bounds is None:
        return None
    found = await store.find_map_ids(*bounds, tenant=tenant)
    if len(found) > 1:
        raise OptionError(
            f"the short id {text} matches several maps: {', '.join(found)}, …",
            fix="give more of its digits",
            option="map_id",
            value=text,
        )
    return found[0] if found else None
