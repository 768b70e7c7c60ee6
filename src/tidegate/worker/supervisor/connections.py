"""Logs, when a worker starts, whether the database server has enough connections for all workers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from tidegate.store.connect import is_postgres, open_store
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.worker")

_MAX_SECONDS = 10.0

_DescribeConnections = Callable[..., Awaitable[tuple[str, bool]]]


def open_supervising(url: str) -> Store:
    """Return the store for a supervisor, which uses few connections to a database server."""
    return open_store(url, supervises=True) if is_postgres(url) else open_store(url)


async def log_connections(store: Store, name: str, processes: int) -> None:
    """Log how many connections all workers may open; warn if the server has fewer.

    Do nothing for a database file, or if the store does not answer in time.

    Args:
        store: Holds the live workers.
        name: The name of this worker.
        processes: The number of this worker's pool processes, registered or not.
    """
    describe: _DescribeConnections | None = getattr(store, "describe_connections", None)
    if describe is None:
        return
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            now = await store.now()
            mine = (socket.gethostname(), name)
            live = [(row.host, row.name) for row in await store.list_workers() if row.expires_at > now]
            others = [worker for worker in live if worker != mine]
            description, are_too_many = await describe(
                processes=processes + len(others), supervisors=1 + len(set(others))
            )
    except Exception as error:
        log.debug("the server's connections are unknown: %s", error)
        return
    if are_too_many:
        log.warning("%s: raise max_connections, or put connections=2 into the database URL", description)
    else:
        log.info("%s", description)
