"""Those who wait for a connection because the server has none left for a new one."""

from __future__ import annotations

import asyncio
from collections import deque

from tidegate.store.postgres.connecting import Connection


class Waiting:
    """A queue, in one event loop."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def given(self) -> Connection | None:
        """Wait for a connection; None: look again whether one can be made."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def give(self, connection: Connection | None) -> bool:
        """Give a connection to the first in the queue, or wake that one; return whether there was any."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False
