"""Opening the store when a worker starts: the server may not be up yet, or have no connection left."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from tidegate.errors import StoreUnavailableError
from tidegate.worker.backoff_delay import BackoffDelay

log = logging.getLogger("tidegate.worker")

START_SECONDS = 60.0
"""How long a worker that starts keeps trying to reach its store before it gives up."""


async def open_with_retries(
    open_store: Callable[[], Awaitable[object]], *, seconds: float = START_SECONDS
) -> None:
    """Open the store, again and again while the reason may pass: it is not up yet, or full.

    Args:
        open_store: Opens it; safe to repeat.
        seconds: When to give up.

    Raises:
        StoreError: It could not be opened in this time, or for a reason that does not pass by itself.
        ConfigError, SchemaError: It is not the right one.
    """
    loop, pause = asyncio.get_running_loop(), BackoffDelay(random.Random())
    ends_at = loop.time() + seconds
    while True:
        try:
            await open_store()
        except StoreUnavailableError as error:
            left = ends_at - loop.time()
            if not error.facts.get("may_pass") or left <= 0:
                raise
            log.warning("the store cannot be reached yet; trying for another %.0f s: %s", left, error)
            await asyncio.sleep(min(pause.next(), left))
        else:
            return
