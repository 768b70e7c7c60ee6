"""Warn once about tasks that nothing will run: no worker serves their queue or knows their function."""

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
"""Most kinds of tasks that one process checks. With thousands of queues, the others are not checked."""
_CACHE_SECONDS = 10.0
"""How long the queues and functions of the live workers are cached."""
_TIMEOUT_SECONDS = 2.0
"""Longest time that the check may add to the first enqueue of a kind."""


class UnservedTaskWarner:
    """Checks each kind of task once, when this process first enqueues it.

    Args:
        pools: The pools in the application's configuration; used while no worker is live.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._serving_if_no_worker = LiveWorkers([LiveWorker(pool.queues) for pool in pools])
        self._checked: set[TaskKind] = set()
        self._serving_cache: LiveWorkers | None = None
        self._cached_at = 0.0

    def has_checked(self, kind: TaskKind) -> bool:
        """Return whether `warn` has nothing to do for this kind."""
        return kind in self._checked

    async def warn(self, store: Store, task_kinds: Collection[TaskKind]) -> None:
        """Log a warning for each kind that nothing runs. Errors are ignored: the tasks are stored already."""
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
        """Return what the live workers serve; without any, what the configured pools would serve."""
        if self._serving_cache is None or time.monotonic() - self._cached_at > _CACHE_SECONDS:
            live = await load_live_workers(store, await store.now())
            self._serving_cache, self._cached_at = (
                live if live.workers else self._serving_if_no_worker,
                time.monotonic(),
            )
        return self._serving_cache
