"""The connections of a process. Each event loop has its own, because a connection belongs to a loop."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import suppress

from tidegate.store.postgres.address import Address
from tidegate.store.postgres.connections import OPEN, LoopConnections


class ConnectionsByLoop:
    """The connections of this process to one address.

    Args:
        address: The server.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pid = os.getpid()
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopConnections] = {}

    def for_this_loop(self) -> LoopConnections:
        """Return the running loop's connections; close those that closed loops have left open."""
        self._notice_fork()
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            connections = self._by_loop[loop] = LoopConnections(self._address)
        if _close_orphaned():
            for closed in [other for other in list(self._by_loop) if other.is_closed()]:
                self._by_loop.pop(closed, None)
        return connections

    async def close(self) -> None:
        """Close all connections of all loops."""
        self._notice_fork()
        here = asyncio.get_running_loop()
        for loop, connections in list(self._by_loop.items()):
            if loop is here:
                await connections.close()
            elif loop.is_running():
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(connections.abandon)
            else:
                connections.abandon()
            self._by_loop.pop(loop, None)

    def _notice_fork(self) -> None:
        """In a forked child, forget the parent's connections without touching them."""
        if self._pid != os.getpid():
            self._pid, self._by_loop = os.getpid(), {}


def _close_orphaned() -> bool:
    """Close the connections of closed loops, of all stores; return whether there were any."""
    closed = [connections for connections in OPEN.copy() if connections.is_orphaned]
    is_cut_short = any(connections.is_making for connections in closed)
    for connections in closed:
        connections.abandon()
        OPEN.discard(connections)
    if is_cut_short:
        gc.collect()  # nothing else closes a connection that asyncpg had not returned yet
    return bool(closed)
