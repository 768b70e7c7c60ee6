"""Idle connections: how long each has been idle, and closing those idle for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tidegate.store.postgres.connecting import Connection

MOST_IDLE_SECONDS = 30.0
"""Idle time after which a connection is closed, since other processes need the server's connections."""
QUIET_SECONDS = 5.0
"""Idle time after which a connection is checked before use: a NAT gateway may have dropped it silently."""
CHECK_SECONDS = 2.0


class Idle:
    """The idle connections of one event loop.

    Args:
        part_with: Called with each connection that was idle for too long.
    """

    def __init__(self, part_with: Callable[[Connection], None]) -> None:
        self._part_with = part_with
        self._since: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def connections(self) -> list[Connection]:
        """Return the idle connections, the most recently used last."""
        return list(self._since)

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        loop = asyncio.get_running_loop()
        self._since[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(MOST_IDLE_SECONDS, self._close_expired)

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; return whether it must be checked before use."""
        return asyncio.get_running_loop().time() - self._since.pop(connection) > QUIET_SECONDS

    def clear(self) -> None:
        """Remove all connections."""
        self._since.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_expired(self) -> None:
        now, self._timer = asyncio.get_running_loop().time(), None
        for connection in [
            connection for connection, since in self._since.items() if now - since >= MOST_IDLE_SECONDS
        ]:
            del self._since[connection]
            self._part_with(connection)
        if self._since:
            next_at = min(self._since.values()) + MOST_IDLE_SECONDS
            self._timer = asyncio.get_running_loop().call_at(next_at, self._close_expired)


async def answers(connection: Connection) -> bool:
    """Return whether the server still answers on a connection."""
    with suppress(Exception):  # any error means that the server does not answer
        await connection.execute("SELECT 1", timeout=CHECK_SECONDS)
        return True
    return False
