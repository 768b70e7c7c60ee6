"""Closes a store that may hang: a service must end within its grace time anyway."""

from __future__ import annotations

import asyncio
import logging
import os

from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.supervisor")


async def close_or_exit(store: Store, *, within: float, code: int) -> None:
    """Close a store. If it hangs, end this process, which the store's threads would keep alive.

    Args:
        store: The store. Its last writes are done or given up.
        within: Seconds to wait.
        code: The exit code if the process ends here.
    """
    try:
        async with asyncio.timeout(within):
            await store.close()
    except TimeoutError:
        log.warning("the store did not close within %g s; this process ends without closing it", within)
        logging.shutdown()
        os._exit(code)
