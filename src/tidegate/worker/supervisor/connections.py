"""Whether the server has enough connections for all workers: said in the log when a worker starts."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from tidegate.store.connect import is_postgres, open_store
from tidegate.store.protocol import Store

log = logging.getLogger("tidegate.worker")

_MOST_SECONDS = 10.0

_Told = Callable[..., Awaitable[tuple[str, bool]]]


def open_supervising(url: str) -> Store:
    """Return the store for a process that only looks after others: it uses few connections to a server."""
    return open_store(url, supervises=True) if is_postgres(url) else open_store(url)


async def say_connections(store: Store, name: str, processes: int) -> None:
    """Log how many connections all workers may open; a warning if the server has fewer.

    A store that does not answer in time is not waited for. One that is a file has nothing to say.

    Args:
        store: Its live workers count.
        name: Of this worker.
        processes: Of this worker's pools, stored or not.
    """
    told: _Told | None = getattr(store, "connections_told", None)
    if told is None:
        return
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            now = await store.now()
            mine = (socket.gethostname(), name)
            live = [(row.host, row.name) for row in await store.list_workers() if row.expires_at > now]
            others = [worker for worker in live if worker != mine]
            words, is_too_much = await told(
                processes=processes + len(others), supervisors=1 + len(set(others))
            )
    except Exception as error:
        log.debug("the server's connections are not known: %s", error)
        return
    if is_too_much:
        log.warning("%s: raise max_connections, or put connections=2 into the database URL", words)
    else:
        log.info("%s", words)
