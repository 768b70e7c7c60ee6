"""An event loop with virtual time: timers fire without a real wait, and a run can be repeated by its seed.

Coroutines may wait for timers only. With threads, sockets or child processes, use a real loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""Start of virtual time, in seconds since the epoch."""


class StuckError(RuntimeError):
    """Every coroutine waits, and no timer is set that could wake one."""


class _NoSelector(selectors.SelectSelector):
    """Never waits for sockets; moves the loop's clock on instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        """Move the clock on by the timeout instead of waiting."""
        if timeout is None:
            raise StuckError("every coroutine waits and no timer is set")
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time."""

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_NoSelector(self))

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._virtual

    def jump(self, seconds: float) -> None:
        """Move the clock on by some seconds."""
        self._virtual += max(0.0, seconds)

    def wall(self) -> float:
        """Return virtual seconds since the epoch, for stores and ids."""
        return EPOCH + self._virtual


def run_virtually(work: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run a coroutine to its end in virtual time, then cancel the tasks that it left running.

    Raises:
        StuckError: The coroutine waits, and no timer is set.
    """
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
