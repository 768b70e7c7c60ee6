"""What a worker warns of when it starts: queues that nothing serves, and stored tasks that nothing runs."""

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

_MOST_SECONDS = 5.0


async def unserved_reasons(
    store: Store, pools: Sequence[Pool], functions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return in words which tasks would wait for ever, why, and what to do; none is the usual answer.

    Args:
        store: Its live workers count too.
        pools: Those about to start, and those of the application's configuration: others may run them.
        functions: What the application declares, by name, each with its `queue`.
    """
    live = await load_live_workers(store, await store.now())
    served = LiveWorkers([*live.workers, *(LiveWorker(pool.queues, functions) for pool in pools)])
    declared = {
        (name, why)
        for name, settings in functions.items()
        if (why := served.unserved(str(settings["queue"]), name))
    }
    stored: set[tuple[str, str]] = set()

    def judged(queue: str, function: str) -> str:
        if why := served.unserved(queue, function):
            stored.add((function, why))
        return why

    await store.get_queue_stats(judged)
    return [f"tasks of {name} wait: {why}" for name, why in sorted(stored)] + [
        f"tasks of {name} would wait: {why}" for name, why in sorted(declared - stored)
    ]


async def warn_of_unserved(
    store: Store, pools: Sequence[Pool], functions: Mapping[str, Mapping[str, Any]]
) -> None:
    """Log a warning for each such kind of task. A store that does not answer in time is not waited for."""
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            reasons = await unserved_reasons(store, pools, functions)
    except Exception as error:
        log.debug("tasks that nothing runs are not known: %s", error)
        return
    for reason in reasons:
        log.warning("%s", reason)
