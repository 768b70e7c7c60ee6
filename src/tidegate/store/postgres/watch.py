"""Wait for changes.

A commit of this process wakes waiting tasks directly, one of another process by a hint.
"""

from __future__ import annotations

import asyncio
import os
from weakref import WeakKeyDictionary

from tidegate.store.common.waiters import Waiters
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.hints import Hints
from tidegate.store.postgres.listener import Listener


class PostgresWatcher:
    """Wakes waiting tasks of this process after commits, and notifies other processes of its own.

    Args:
        database: The store's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reset()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since the task's last return, or on timeout."""
        self._notice_fork()
        await self._waiters.wait_for_change(timeout_seconds, self._listen)

    def committed(self) -> None:
        """Notify waiting tasks and processes of a commit made in the running loop."""
        self._notice_fork()
        self._waiters.wake()
        if self._database.address.hints:
            loop = asyncio.get_running_loop()
            if loop not in self._hints:
                self._hints[loop] = Hints(self._database)
            self._hints[loop].committed()

    async def close(self) -> None:
        """Send a pending hint of the running loop, and stop listening in it."""
        self._notice_fork()
        loop = asyncio.get_running_loop()
        hints = self._hints.pop(loop, None)
        if hints is not None:
            await hints.flush()
        listener = self._listeners.pop(loop, None)
        if listener is not None:
            await listener.stop()
        self._waiters.wake()

    def _notice_fork(self) -> None:
        """Reset in a forked child: the waiting tasks and the listener belong to the parent."""
        if self._pid != os.getpid():
            self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._waiters = Waiters()
        self._hints: WeakKeyDictionary[asyncio.AbstractEventLoop, Hints] = WeakKeyDictionary()
        self._listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()

    def _listen(self) -> None:
        """Ensure that one loop of this process listens."""
        address = self._database.address
        if not address.hints or any(listener.is_active for listener in self._listeners.values()):
            return
        for loop, listener in list(self._listeners.items()):
            if listener.abandon_if_loop_is_closed():
                self._listeners.pop(loop, None)
        listener = Listener(address.listen_dsn, address.schema, self._waiters.wake)
        listener.start()
        self._listeners[asyncio.get_running_loop()] = listener
