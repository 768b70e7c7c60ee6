"""Warns once of tasks that nothing will run: no worker serves their queue, or none knows their function."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence

from tidegate.policy.serving import LiveWorker, Serving
from tidegate.store.protocol import Store
from tidegate.store.serving import serving
from tidegate.worker.settings import Pool

log = logging.getLogger("tidegate")

Kind = tuple[str, str]
"""Queue and function of tasks."""

_MOST_KINDS = 1_000
"""Kinds of tasks that one process looks at; where queues are made by the thousand, the rest is not judged."""
_KEPT_SECONDS = 10.0
"""For how long what the workers serve is taken as known."""
_MOST_SECONDS = 2.0
"""What a look may add to the first enqueue of a kind."""


class UnservedWarning:
    """Looks once at each kind of task that this process enqueues.

    Args:
        pools: Of the application's configuration: they count while no worker is live.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = Serving([LiveWorker(pool.queues) for pool in pools])
        self._seen: set[Kind] = set()
        self._known: Serving | None = None
        self._known_at = 0.0

    async def look(self, store: Store, kinds: Collection[Kind]) -> None:
        """Warn of those kinds that nothing runs. Tasks are stored already: a look that fails says nothing."""
        fresh = [kind for kind in dict.fromkeys(kinds) if kind not in self._seen]
        if not fresh or len(self._seen) >= _MOST_KINDS:
            return
        self._seen.update(fresh)
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                served = await self._serving(store)
        except Exception:
            return
        for queue, function in fresh:
            if why := served.unserved(queue, function):
                log.warning("tasks of %s wait: %s", function, why)

    async def _serving(self, store: Store) -> Serving:
        """Return what the live workers run; where there is none, what the configured pools would serve."""
        if self._known is None or time.monotonic() - self._known_at > _KEPT_SECONDS:
            live = await serving(store, await store.now())
            self._known, self._known_at = live if live.workers else self._pools, time.monotonic()
        return self._known
