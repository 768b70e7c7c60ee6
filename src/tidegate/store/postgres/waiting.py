"""The queue of callers that wait for a connection while the server has none left."""

from __future__ import annotations

import asyncio
from collections import deque

from tidegate.store.postgres.connecting import Connection


class Waiting:
    """The waiting callers of one event loop."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def given(self) -> Connection | None:
        """Wait for a connection; return None if the caller should try again to open one."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def give(self, connection: Connection | None) -> bool:
        """Give a connection to the first caller in the queue, or wake it; return whether one waited."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False
