"""An event loop whose clock jumps: whatever waits for time waits for nothing, and a run repeats by its seed.

Nothing but timers may be waited for: with threads, sockets or child processes in play, use a real loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""Where virtual time begins, in seconds since the epoch."""


class StuckError(RuntimeError):
    """Every coroutine waits, and no timer will ever wake one."""


class _NoSelector(selectors.SelectSelector):
    """Never waits for the outside; tells the loop how far its clock may jump."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        """Jump by the timeout instead of waiting for it."""
        if timeout is None:
            raise StuckError("every coroutine waits and no timer is set")
        self._loop.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time."""

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_NoSelector(self))

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._virtual

    def jump(self, seconds: float) -> None:
        """Move the clock on."""
        self._virtual += max(0.0, seconds)

    def wall(self) -> float:
        """Return virtual seconds since the epoch, for stores and ids."""
        return EPOCH + self._virtual


def run_virtually(work: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run a coroutine to its end on virtual time; whatever it left running is cancelled.

    Raises:
        StuckError: It waits for something that can never come.
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
