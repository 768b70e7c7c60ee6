"""Warns, when a worker starts, of queues that no worker serves and of stored tasks that no worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.policy.live_workers import LiveWorker, LiveWorkers
from tidegate.store.live_workers import load_live_workers
from tidegate.store.protocol import Store
from tidegate.worker.settings import Pool

log = logging.getLogger("tidegate.worker")

_MAX_SECONDS = 5.0


async def unserved_reasons(
    store: Store, pools: Sequence[Pool], functions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return a sentence for each kind of task that would wait for ever: why, and what to do. Usually none.

    Args:
        store: Holds the tasks and the live workers.
        pools: The pools about to start, and the pools of the application's configuration, which other workers
            may run.
        functions: The functions that the application declares, by name; each has its `queue`.
    """
    live = await load_live_workers(store, await store.now())
    served = LiveWorkers([*live.workers, *(LiveWorker(pool.queues, functions) for pool in pools)])
    declared = {
        (name, why)
        for name, settings in functions.items()
        if (why := served.unserved(str(settings["queue"]), name))
    }
    stored: set[tuple[str, str]] = set()

    def find_reason(queue: str, function: str) -> str:
        if why := served.unserved(queue, function):
            stored.add((function, why))
        return why

    await store.get_queue_stats(find_reason)
    return [f"tasks of {name} wait: {why}" for name, why in sorted(stored)] + [
        f"tasks of {name} would wait: {why}" for name, why in sorted(declared - stored)
    ]


async def warn_of_unserved(
    store: Store, pools: Sequence[Pool], functions: Mapping[str, Mapping[str, Any]]
) -> None:
    """Log a warning for each reason. Do nothing if the store does not answer in time."""
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            reasons = await unserved_reasons(store, pools, functions)
    except Exception as error:
        log.debug("cannot check for tasks that no worker runs: %s", error)
        return
    for reason in reasons:
        log.warning("%s", reason)
