"""Warns once of each upstream whose limit the live workers have too few slots for."""

from __future__ import annotations

import logging

from tidegate.store.capacity import find_slot_shortages
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.maintenance")


class CapacityWatch:
    """Looks at limits and slots.

    Args:
        store: Whose.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._undersized: frozenset[str] = frozenset()
        """The upstreams that were short at the last look."""
        self._warned: set[str] = set()

    async def run_once(self) -> bool:
        """Make one look; return that there is nothing more to do at once.

        Only what is short at two looks is worth a warning: workers that are just being started or replaced
        make it short for a moment.
        """
        found = await find_slot_shortages(self._store)
        for shortage in found:
            if shortage.upstream in self._undersized and shortage.upstream not in self._warned:
                self._warned.add(shortage.upstream)
                log.warning("%s; %s", shortage.words, shortage.fix)
        self._undersized = frozenset(shortage.upstream for shortage in found)
        return False
