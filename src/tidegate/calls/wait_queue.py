"""The calls of one upstream in this process that wait for a place in flight.

The place in flight of a run covers one call at a time. No message comes when calls of other processes end, so
waiting calls also check again after a pause.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

from tidegate.domain.outcome import Fence


class WaitingCall:
    """A call that waits for a place in flight.

    Args:
        fence: The run whose place the call may use; None if there is none.
        max_wait_seconds: How long the call may wait. The time restarts whenever a call of its run ends,
            because calls of one run take turns.
        clock: Returns monotonic seconds.
    """

    def __init__(self, fence: Fence | None, max_wait_seconds: float, clock: Callable[[], float]) -> None:
        self.fence = fence
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock
        self._ends_at = clock() + max_wait_seconds
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    @property
    def remaining_seconds(self) -> float:
        """How many more seconds this call may wait."""
        return self._ends_at - self._clock()

    @property
    def is_woken(self) -> bool:
        """Whether a call ended since `clear`."""
        return self._woken.is_set()

    def clear(self) -> None:
        """Forget earlier wake-ups. Call this before each check for a place."""
        self._woken.clear()

    def restart_timeout(self) -> None:
        """Let this call wait for its full time again, counted from now."""
        self._ends_at = self._clock() + self._max_wait_seconds

    def wake(self) -> None:
        """End the current pause of this call. May be called from any thread."""
        with suppress(RuntimeError):  # the event loop is closed, so nothing waits
            self._loop.call_soon_threadsafe(self._woken.set)

    async def pause(self, seconds: float) -> None:
        """Wait until `wake` is called, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()


class CallWaitQueue:
    """Knows which call uses each run's place, and which calls wait.

    All event loops and threads of the process may use it.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The references are weak: a response that is neither read nor closed frees its run's place once it is
        # garbage-collected.
        self._on_place: WeakValueDictionary[Fence, object] = WeakValueDictionary()
        self._waiting: list[WaitingCall] = []

    def take_run_place(self, fence: Fence | None, call: object) -> bool:
        """Let the call use the place of its run if no other call uses it.

        Return whether the call has the place.
        """
        if fence is None:
            return False
        with self._lock:
            return self._on_place.setdefault(fence, call) is call

    def leave_run_place(self, fence: Fence | None, call: object) -> None:
        """Free the place of this run, and wake the first call that waits for it."""
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
        """Wake the first waiting call."""
        with self._lock:
            first = self._waiting[0] if self._waiting else None
        if first is not None:
            first.wake()

    @contextmanager
    def waiting(self, fence: Fence | None, max_wait_seconds: float) -> Iterator[WaitingCall]:
        """Wait in the queue inside the block."""
        waiter = WaitingCall(fence, max_wait_seconds, self._clock)
        with self._lock:
            self._waiting.append(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiting.remove(waiter)
            if waiter.is_woken:  # this call did not use the wake-up, so pass it on
                self.wake_first()
