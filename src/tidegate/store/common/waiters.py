"""Tasks that wait for a change in a store, on any event loop of the process."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

RECENT_CHANGE_SECONDS = 0.05
"""A task that waits for the first time returns at once for a change as recent as this."""

_LONGEST_WAIT_SECONDS = 86_400.0


class Waiters:
    """Wakes the tasks that wait for a change.

    Each asyncio task remembers the last change it returned for, so a change between two calls makes the
    second return at once. A task that waits for the first time also returns for a very recent change, because
    it may have read before that. An older change does not end the wait: otherwise a caller that makes an
    asyncio task for each call would never wait.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._seen_changes: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._changes = 0
        self._changed_at = -math.inf

    def __bool__(self) -> bool:
        """Whether any task waits."""
        return bool(self._waiters)

    async def wait_for_change(self, timeout_seconds: float, on_wait: Callable[[], None]) -> None:
        """Return as soon as `wake` was called since this task's last return, or after `timeout_seconds`.

        Args:
            timeout_seconds: The longest wait.
            on_wait: Called if the task has to wait, as soon as a `wake` would reach it.
        """
        caller = asyncio.current_task()
        assert caller is not None
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if not self._enlist(caller, waiter):
            await asyncio.sleep(0)
            return
        on_wait()
        timer = loop.call_later(min(timeout_seconds, _LONGEST_WAIT_SECONDS), _resolve, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            with self._lock:
                self._waiters.discard(waiter)
                self._seen_changes[caller] = self._changes

    def wake(self) -> None:
        """Wake all waiting tasks: something has changed. May be called from any thread."""
        with self._lock:
            self._changes += 1
            self._changed_at = time.monotonic()
            waiters = list(self._waiters)
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for waiter in waiters:
            by_loop.setdefault(waiter.get_loop(), []).append(waiter)
        for loop, mine in by_loop.items():
            # The loop may have been closed: then nothing waits there.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve_all, mine)

    def _enlist(self, caller: asyncio.Task[Any], waiter: asyncio.Future[None]) -> bool:
        """Add a waiter; return False if its task has not seen the latest change."""
        with self._lock:
            is_recent = time.monotonic() - self._changed_at < RECENT_CHANGE_SECONDS
            if self._seen_changes.get(caller, -1 if is_recent else self._changes) != self._changes:
                self._seen_changes[caller] = self._changes
                return False
            self._waiters.add(waiter)
        return True


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _resolve_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _resolve(waiter)
