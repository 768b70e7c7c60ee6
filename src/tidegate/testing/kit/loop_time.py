"""Lets a running event loop jump over its waits: while it is idle, time jumps to the next timer.

Only loops of asyncio's own kind can do so, because the loop's clock and selector are replaced for the time of
a block. Timers that were set before the block keep their real time.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from tidegate.errors import UsageError
from tidegate.testing.kit.clock import KitClock

OnIdle = Callable[[], float | None]
"""Called when the loop has nothing to do. Returns for how many real seconds it may wait; None: not at all."""


class LoopTime:
    """The time of one event loop inside a block.

    Args:
        loop: The running loop.
        clock: The test's clock. Each jump moves both.
        on_idle: Called whenever nothing is ready to run.
        on_turn: Called in each turn of the loop. It may raise nothing.

    Raises:
        UsageError: The loop's clock cannot be replaced.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: KitClock,
        *,
        on_idle: OnIdle,
        on_turn: Callable[[], None],
    ) -> None:
        if not isinstance(loop, asyncio.SelectorEventLoop):
            raise UsageError(
                f"the test kit cannot move the time of {type(loop).__module__}.{type(loop).__name__}",
                fix="run the test on asyncio's own event loop; or use the …_sync methods in a sync test",
            )
        self._loop: Any = loop
        self._clock = clock
        self._on_idle = on_idle
        self._on_turn = on_turn
        self._began_at = clock.offset
        self._of_test: list[asyncio.TimerHandle] = []
        """Timers that were there before the block."""
        self._executing = 0
        """Calls that run in threads of the loop's executor."""

    def __enter__(self) -> Self:
        self._began_at = self._clock.offset
        self._of_test = list(self._loop._scheduled)
        self._real_time = self._loop.time
        self._real_execute = self._loop.run_in_executor
        self._real_selector = self._loop._selector
        self._loop.time = self._time
        self._loop.run_in_executor = self._execute
        self._loop._selector = _IdleSelector(self._real_selector, self._select)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop._selector = self._real_selector
        del self._loop.time
        del self._loop.run_in_executor
        self._shift(self._loop._scheduled, self._began_at - self._clock.offset)

    # --- called by the driver ---

    def jump(self, seconds: float) -> None:
        """Move the time of the loop and of the test forward."""
        before = self._clock.offset
        self._clock.jump(seconds)
        self._jumped(self._clock.offset - before)

    def jump_to(self, moment: float) -> None:
        """Move both to a moment of the test's clock."""
        before = self._clock.offset
        self._clock.jump_to(moment)
        self._jumped(self._clock.offset - before)

    def seconds_until(self, timer: asyncio.TimerHandle) -> float:
        """Return for how long a timer waits, at least 0."""
        return float(max(0.0, timer.when() - self._loop.time()))

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that were set inside the block and still wait."""
        of_test = set(map(id, self._of_test))
        scheduled: Iterable[asyncio.TimerHandle] = self._loop._scheduled
        return [timer for timer in scheduled if not timer.cancelled() and id(timer) not in of_test]

    @property
    def waits_for_threads(self) -> bool:
        """Whether a call runs in a thread of the loop's executor."""
        return self._executing > 0

    @property
    def watches_files(self) -> bool:
        """Whether the loop watches a socket or pipe other than its own."""
        own = self._loop._ssock  # its own wake-up socket
        return any(key.fileobj is not own and key.fd != own.fileno() for key in self._files())

    def has_events(self) -> bool:
        """Return whether something waits for the next turn of the loop: a socket, or a call by a thread."""
        return bool(self._real_selector.select(0))

    def _files(self) -> Iterable[selectors.SelectorKey]:
        found: Iterable[selectors.SelectorKey] = self._real_selector.get_map().values()
        return found

    # --- called by the loop ---

    def _time(self) -> float:
        return float(self._real_time() + self._clock.offset - self._began_at)

    def _execute(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._real_execute(executor, function, *args)
        self._executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _: asyncio.Future[Any]) -> None:
        self._executing -= 1

    def _select(self, timeout: float | None) -> Any:
        self._on_turn()
        events = self._real_selector.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        may_wait = self._on_idle()
        if may_wait is None:
            return events
        return self._real_selector.select(may_wait if timeout is None else min(timeout, may_wait))

    def _jumped(self, seconds: float) -> None:
        if self._of_test:
            waiting = {id(timer) for timer in self._loop._scheduled}
            self._of_test = [timer for timer in self._of_test if id(timer) in waiting]
            self._shift(self._of_test, seconds)

    def _shift(self, timers: Iterable[Any], seconds: float) -> None:
        if seconds:
            for timer in timers:
                timer._when += seconds
            heapq.heapify(self._loop._scheduled)


class _IdleSelector:
    """The loop's selector. Each `select` goes through our hook first."""

    def __init__(self, selector: Any, select: Callable[[float | None], Any]) -> None:
        self._selector = selector
        self.select = select

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


_SLEEP = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]


def is_sleep(timer: Any) -> bool:
    """Return whether a timer ends an `asyncio.sleep`."""
    return bool(timer._callback is _SLEEP)


def is_routine(timer: Any) -> bool:
    """Return whether a timer only starts the engine's next round, so that it may fire late."""
    owner = getattr(timer._callback, "__self__", None)
    return is_sleep(timer) or isinstance(owner, asyncio.Timeout)


def context_of(timer: Any) -> Any:
    """Return the context in which a timer was set."""
    return timer._context
