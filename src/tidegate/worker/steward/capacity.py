"""Warns once of each upstream whose limit the live workers have too few slots for."""

from __future__ import annotations

import logging

from tidegate.store.capacity import shortages
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.steward")


class CapacityWatch:
    """Looks at limits and slots.

    Args:
        store: Whose.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._short: frozenset[str] = frozenset()
        """The upstreams that were short at the last look."""
        self._warned: set[str] = set()

    async def act(self) -> bool:
        """Make one look; return that there is nothing more to do at once.

        Only what is short at two looks is worth a warning: workers that are just being started or replaced
        make it short for a moment.
        """
        found = await shortages(self._store)
        for short in found:
            if short.upstream in self._short and short.upstream not in self._warned:
                self._warned.add(short.upstream)
                log.warning("%s; %s", short.words, short.fix)
        self._short = frozenset(short.upstream for short in found)
        return False
