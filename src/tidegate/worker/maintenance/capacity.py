"""Warns once for each upstream whose limit cannot be used because the live workers have too few slots."""

from __future__ import annotations

import logging

from tidegate.store.live_workers import find_slot_shortages
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.maintenance")


class CapacityWatch:
    """Compares the limits of upstreams with the slots of the live workers.

    Args:
        store: Holds the limits and the workers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._undersized: frozenset[str] = frozenset()
        """The upstreams that had too few slots at the last check."""
        self._warned: set[str] = set()

    async def run_once(self) -> bool:
        """Check once. Always return False: there is never more to do at once.

        Warn only of a shortage that two checks in a row found: workers that start or are replaced cause brief
        shortages.
        """
        found = await find_slot_shortages(self._store)
        for shortage in found:
            if shortage.upstream in self._undersized and shortage.upstream not in self._warned:
                self._warned.add(shortage.upstream)
                log.warning("%s; %s", shortage.description, shortage.fix)
        self._undersized = frozenset(shortage.upstream for shortage in found)
        return False
