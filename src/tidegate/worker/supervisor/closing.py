"""Closing a store that may hang: a service must end within its grace time all the same."""

from __future__ import annotations

import asyncio
import logging
import os

from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.supervisor")


async def close_or_exit(store: Store, *, within: float, code: int) -> None:
    """Close a store; if it hangs, end this process: its threads would hold it.

    Args:
        store: Whose last writes are done, or given up.
        within: Seconds.
        code: The exit code of a process that ends here.
    """
    try:
        async with asyncio.timeout(within):
            await store.close()
    except TimeoutError:
        log.warning("the store does not let go within %g s; this process ends without it", within)
        logging.shutdown()
        os._exit(code)
