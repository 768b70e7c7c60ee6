"""Opens the store when a worker starts, even if the server is not up yet or has no free connection."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from tidegate.errors import StoreUnavailableError
from tidegate.worker.backoff_delay import BackoffDelay

log = logging.getLogger("tidegate.worker")

START_SECONDS = 60.0
"""How long a starting worker tries to reach its store before it gives up."""


async def open_with_retries(
    open_store: Callable[[], Awaitable[object]], *, seconds: float = START_SECONDS
) -> None:
    """Open the store. Retry while the cause may be temporary, such as a server that is not up yet or is full.

    Args:
        open_store: Opens the store; safe to repeat.
        seconds: Give up after this time.

    Raises:
        StoreError: The store could not be opened in this time, or the cause is permanent.
        ConfigError, SchemaError: The URL or the schema is wrong.
    """
    loop, pause = asyncio.get_running_loop(), BackoffDelay(random.Random())
    ends_at = loop.time() + seconds
    while True:
        try:
            await open_store()
        except StoreUnavailableError as error:
            left = ends_at - loop.time()
            if not error.may_pass or left <= 0:
                raise
            log.warning("the store cannot be reached yet; trying for another %.0f s: %s", left, error)
            await asyncio.sleep(min(pause.next(), left))
        else:
            return
