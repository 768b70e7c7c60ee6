"""Calls of one upstream in this process: which of them their run stands for, and who waits for one to end.

Other processes tell nobody here when their calls end; those that wait look again in any case.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

from tidegate.domain.outcome import Fence


class WaitingCall:
    """A call that looks for a place again and again.

    Args:
        fence: The run whose place it may have; None: none.
        max_wait_seconds: How long it may wait. Begins anew whenever a call of its run ends: they take turns.
        clock: Monotonic seconds.
    """

    def __init__(self, fence: Fence | None, max_wait_seconds: float, clock: Callable[[], float]) -> None:
        self.fence = fence
        self._patience_seconds = max_wait_seconds
        self._clock = clock
        self._ends_at = clock() + max_wait_seconds
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    @property
    def remaining_seconds(self) -> float:
        """How much longer it may wait."""
        return self._ends_at - self._clock()

    @property
    def is_woken(self) -> bool:
        """Whether something ended since it looked."""
        return self._woken.is_set()

    def clear(self) -> None:
        """Count as woken from now on only by what ends later."""
        self._woken.clear()

    def restart_timeout(self) -> None:
        """Have all of its patience again."""
        self._ends_at = self._clock() + self._patience_seconds

    def wake(self) -> None:
        """End its present pause; from any thread."""
        with suppress(RuntimeError):  # its loop is closed, and nobody waits there
            self._loop.call_soon_threadsafe(self._woken.set)

    async def pause(self, seconds: float) -> None:
        """Wait until something ended, at most for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()


class CallWaitQueue:
    """Who is under way on the place of a run, and who waits. Used by all loops and threads of the process.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # An answer that is neither read nor closed gives its run's place back when it is forgotten.
        self._on_place: WeakValueDictionary[Fence, object] = WeakValueDictionary()
        self._waiting: list[WaitingCall] = []

    def take_run_place(self, fence: Fence | None, call: object) -> bool:
        """Have the run stand for this call if it stands for no other; tell whether it does."""
        if fence is None:
            return False
        with self._lock:
            return self._on_place.setdefault(fence, call) is call

    def leave_run_place(self, fence: Fence | None, call: object) -> None:
        """Let the run stand for another call, and wake the first that waits for that."""
        with self._lock:
            if fence is None or self._on_place.get(fence) is not call:
                return
            del self._on_place[fence]
            turn = [waiter for waiter in self._waiting if waiter.fence == fence]
        for waiter in turn:
            waiter.restart_timeout()
        if turn:
            turn[0].wake()

    def wake_first(self) -> None:
        """Wake the first of all that wait."""
        with self._lock:
            first = self._waiting[0] if self._waiting else None
        if first is not None:
            first.wake()

    @contextmanager
    def waiting(self, fence: Fence | None, max_wait_seconds: float) -> Iterator[WaitingCall]:
        """Stand in line within the block."""
        waiter = WaitingCall(fence, max_wait_seconds, self._clock)
        with self._lock:
            self._waiting.append(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiting.remove(waiter)
            if waiter.is_woken:  # while it got a place in another way
                self.wake_first()
