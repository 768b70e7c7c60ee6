"""Enqueue the items of a map, of any number: in parts, visible together with the map."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from tidegate.application.bulk_enqueue import PartsEnqueue
from tidegate.store.common.refusals import key_conflict
from tidegate.store.map_rows import MapRow, NewMap
from tidegate.store.protocol import Store
from tidegate.store.rows import NewTask


class MapEnqueue(PartsEnqueue[MapRow]):
    """One map: its items are stored in parts, and no list of them is kept in memory.

    Args:
        store: An open store.
        new: The map. The number and the fingerprint of its items are filled in at the end.
        fingerprint_of: Returns what two equal items have in common; only called for a map with a key.
        existing: The map that has the key already. No item is stored, they are only compared with its items.
    """

    def __init__(
        self,
        store: Store,
        new: NewMap,
        fingerprint_of: Callable[[bytes], bytes],
        existing: MapRow | None = None,
    ) -> None:
        super().__init__(store, new.id)
        self._new = new
        self._fingerprint_of = fingerprint_of
        self._existing = existing
        self._items = 0
        self._digest = hashlib.sha256(new.function.encode())

    def _add(self, task: NewTask) -> None:
        self._items += 1
        if self._new.key is not None:
            item = self._fingerprint_of(task.args)
            self._digest.update(len(item).to_bytes(8) + item)
        if self._existing is None:
            self._part.append(task)

    async def _send_part(self, tasks: list[NewTask]) -> None:
        await self._store.enqueue_map_part(self._new.id, self._batch_id, tasks)

    async def _commit(self) -> MapRow:
        """Make the map and its items visible at once; return it, or the map that has its key.

        Raises:
            KeyConflictError: The map that has the key has other items.
        """
        fingerprint = b"" if self._new.key is None else self._digest.digest()
        stored = self._existing
        if stored is None:
            if self._part:
                await self._store_part()
            new = replace(self._new, items=self._items, fingerprint=fingerprint)
            stored = await self._store.commit_map(new, self._batch_id if self._items else None)
        if stored.id == self._new.id:
            await self._release()
            return stored
        await self._drop_batch()
        if stored.fingerprint != fingerprint and self._new.key is not None:
            raise key_conflict(self._new.key, stored.id)
        return stored
