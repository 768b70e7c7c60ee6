"""Maps: many tasks that were enqueued as one.

The counts of maps are derived from the states of their tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tidegate.domain.final_hook import FinalHook
from tidegate.domain.states import State
from tidegate.store.common.final_hooks import encode_hook
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.map_rows import MapCounts, MapItemRow, MapResultRow, MapRow, NewMap
from tidegate.store.task_tables import REMOVED

_HOOK = msgspec.json.Decoder(FinalHook)
_NULL = b"null"


async def add_map(db: Session, new: NewMap) -> MapRow:
    """Store a map; return it, or the map of its tenant that has its key."""
    values = (
        db.id(new.id),
        storable(new.name),
        new.function,
        storable(new.tenant),
        None if new.key is None else storable(new.key),
        new.fingerprint,
        new.items,
        new.max_failures,
        encode_hook(new.on_complete),
    )
    await db.run(db.sql("maps")["add"], *values, await db.now())
    stored = await get_map(db, new.id)
    if stored is None and new.key is not None:
        stored = await find_map(db, new.tenant, new.key)
    assert stored is not None, "a map that is not added exists"
    return stored


async def get_map(db: Session, map_id: str) -> MapRow | None:
    """Return the map with this id; None if it does not exist."""
    row = await db.row(db.sql("maps")["one"], db.id(map_id))
    return None if row is None else _map(db, row)


async def find_map(db: Session, tenant: str, key: str) -> MapRow | None:
    """Return the tenant's map with this key; None if there is none."""
    row = await db.row(db.sql("maps")["by_key"], storable(tenant), storable(key))
    return None if row is None else _map(db, row)


async def list_maps(
    db: Session, *, tenant: str | None = None, after: str | None = None, limit: int = 50
) -> list[MapRow]:
    """Return maps, the latest first, starting after the id `after`."""
    name = None if tenant is None else storable(tenant)
    start = None if after is None else db.id(after)
    return [_map(db, row) for row in await db.rows(db.sql("maps")["page"], name, start, limit)]


async def find_map_ids(db: Session, smallest: str, largest: str, *, tenant: str | None = None) -> list[str]:
    """Return at most two ids of maps from `smallest` to `largest`."""
    name = None if tenant is None else storable(tenant)
    found = await db.column(db.sql("maps")["ids"], db.id(smallest), db.id(largest), name)
    return [db.text(map_id) for map_id in found]


async def list_open_maps(db: Session) -> list[MapRow]:
    """Return the maps that have not ended."""
    return [_map(db, row) for row in await db.rows(db.sql("maps")["open"])]


async def count_map_items(db: Session, map_id: str, *, since_seconds: float = 0.0) -> MapCounts:
    """Count the items of a map by state; deleted items count as they ended."""
    sql, stored_id = db.sql("maps"), db.id(map_id)
    row = await db.row(sql["count"], stored_id, await db.now() - since_seconds)
    assert row is not None
    stored, succeeded, dead, cancelled, running, recent = (number or 0 for number in row)
    deleted: dict[str, int] = {row[0]: row[1] for row in await db.rows(sql["deleted"], stored_id)}
    return MapCounts(
        succeeded + deleted.get(State.SUCCEEDED, 0),
        dead + deleted.get(State.DEAD, 0),
        cancelled + deleted.get(State.CANCELLED, 0),
        running=running,
        unfinished=stored - succeeded - dead - cancelled,
        recent=recent,
    )


async def count_dead_items(db: Session, map_id: str) -> int:
    """Return how many items are dead."""
    sql, stored_id = db.sql("maps"), db.id(map_id)
    deleted: dict[str, int] = {row[0]: row[1] for row in await db.rows(sql["deleted"], stored_id)}
    dead: int = await db.value(sql["dead_items"], stored_id)
    return dead + deleted.get(State.DEAD, 0)


async def find_unfinished_item(db: Session, map_id: str, position: int = 0) -> int | None:
    """Return the position of the first item that is not final, from a position on; None if all are."""
    found: int | None = await db.value(db.sql("maps")["first_open"], db.id(map_id), position)
    return found


async def list_cancellable_items(
    db: Session, map_id: str, *, after: int = -1, limit: int = 500
) -> list[tuple[int, str]]:
    """Return (position, task id) of items that are neither final nor asked to stop."""
    rows = await db.rows(db.sql("maps")["cancellable"], db.id(map_id), after, limit)
    return [(position, db.text(task_id)) for position, task_id in rows]


async def list_map_items(db: Session, map_id: str, *, after: int = -1, limit: int = 100) -> list[MapItemRow]:
    """Return the items in order, starting after a position."""
    rows = await db.rows(db.sql("maps")["items"], db.id(map_id), after, limit)
    return [MapItemRow(at, db.text(task_id), State(state), reason) for at, task_id, state, reason in rows]


async def list_map_results(db: Session, task_ids: Sequence[str]) -> list[MapResultRow]:
    """Return the results of those of these items that are final, in no order."""
    stored = [found for task_id in task_ids if (found := db.id(task_id)) is not None]
    return [_result(db, *row) for row in await db.rows(db.sql("maps")["results"], db.array(stored))]


async def list_dead_items(db: Session, map_id: str, *, after: int = -1, limit: int = 500) -> list[MapItemRow]:
    """Return the dead items in order, starting after a position."""
    rows = await db.rows(db.sql("maps")["dead_letters"], db.id(map_id), after, limit)
    return [MapItemRow(position, db.text(task_id), State.DEAD, reason) for position, task_id, reason in rows]


async def move_map_cursor(db: Session, map_id: str, position: int) -> None:
    """Store that all items before a position were found final."""
    await db.run(db.sql("maps")["move_cursor"], db.id(map_id), position)


async def cancel_map(db: Session, map_id: str, why: str) -> bool:
    """Have maintenance cancel the unfinished items; return False if it has ended or is being cancelled."""
    values = (db.id(map_id), storable(why), await db.now())
    return await db.value(db.sql("maps")["cancel"], *values) is not None


async def record_end(db: Session, map_id: str, counts: MapCounts, callback_id: str | None) -> bool:
    """Record that all items are final; return False if that is recorded already."""
    final = (counts.succeeded, counts.dead, counts.cancelled)
    follows = None if callback_id is None else db.id(callback_id)
    return await db.value(db.sql("maps")["end"], db.id(map_id), *final, follows, await db.now()) is not None


async def find_old_maps(db: Session, kept_seconds: float, limit: int = 100) -> list[Any]:
    """Return the stored ids of maps that ended longer ago than this and have no task any more."""
    return list(await db.column(db.sql("maps")["old"], await db.now() - kept_seconds, limit))


async def delete_old_maps(db: Session, kept_seconds: float, limit: int = 100) -> int:
    """Delete maps that ended longer ago than this and have no task any more; return how many."""
    sql, found = db.sql("maps"), await find_old_maps(db, kept_seconds, limit)
    if not found:
        return 0
    await db.run(sql["delete_counts"], db.array(found))
    return await db.run(sql["delete"], db.array(found))


class _StoredMap(NamedTuple):
    """A map, as `maps` reads it."""

    id: Any
    name: str
    function: str
    tenant: str
    key: str | None
    fingerprint: bytes
    items: int
    max_failures: int | None
    on_complete: str | None
    created_at: float
    cursor: int
    cancelled_at: float | None
    cancel_why: str
    ended_at: float | None
    succeeded: int
    dead: int
    cancelled: int
    callback_id: Any


def _map(db: Session, row: Sequence[Any]) -> MapRow:
    stored = _StoredMap._make(row)
    decoded = {
        "id": db.text(stored.id),
        "on_complete": None if stored.on_complete is None else _HOOK.decode(stored.on_complete),
        "callback_id": None if stored.callback_id is None else db.text(stored.callback_id),
    }
    return MapRow(**stored._asdict() | decoded)


def _result(
    db: Session, task: Any, state: str, data: bytes | None, codec_tag: str | None, *failure: str
) -> MapResultRow:
    has_succeeded = state == State.SUCCEEDED
    stored = (_NULL if data is None else bytes(data)) if has_succeeded else b""
    return MapResultRow(db.text(task), State(state), stored, codec_tag == REMOVED, *failure)
