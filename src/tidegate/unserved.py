"""Warns once of tasks that nothing will run: no worker serves their queue, or none knows their function."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence

from tidegate.policy.live_workers import LiveWorker, LiveWorkers
from tidegate.store.live_workers import load_live_workers
from tidegate.store.protocol import Store
from tidegate.worker.settings import Pool

log = logging.getLogger("tidegate")

TaskKind = tuple[str, str]
"""Queue and function of tasks."""

_MAX_CHECKED_KINDS = 1_000
"""Kinds of tasks that one process looks at; where queues are made by the thousand, the rest is not judged."""
_CACHE_SECONDS = 10.0
"""For how long what the workers serve is taken as known."""
_TIMEOUT_SECONDS = 2.0
"""What a look may add to the first enqueue of a kind."""


class UnservedTaskWarner:
    """Looks once at each kind of task that this process enqueues.

    Args:
        pools: Of the application's configuration: they count while no worker is live.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._serving_if_no_worker = LiveWorkers([LiveWorker(pool.queues) for pool in pools])
        self._checked: set[TaskKind] = set()
        self._serving_cache: LiveWorkers | None = None
        self._cached_at = 0.0

    async def warn(self, store: Store, task_kinds: Collection[TaskKind]) -> None:
        """Warn of those kinds that nothing runs. Tasks are stored already: a look that fails says nothing."""
        unchecked = [kind for kind in dict.fromkeys(task_kinds) if kind not in self._checked]
        if not unchecked or len(self._checked) >= _MAX_CHECKED_KINDS:
            return
        self._checked.update(unchecked)
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                served = await self._current_serving(store)
        except Exception:
            return
        for queue, function in unchecked:
            if why := served.unserved(queue, function):
                log.warning("tasks of %s wait: %s", function, why)

    async def _current_serving(self, store: Store) -> LiveWorkers:
        """Return what the live workers run; where there is none, what the configured pools would serve."""
        if self._serving_cache is None or time.monotonic() - self._cached_at > _CACHE_SECONDS:
            live = await load_live_workers(store, await store.now())
            self._serving_cache, self._cached_at = (
                live if live.workers else self._serving_if_no_worker,
                time.monotonic(),
            )
        return self._serving_cache
