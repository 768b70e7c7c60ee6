"""Work that outlives a cancelled caller for a moment, so that the connection it uses can be kept.

asyncpg sends a cancelled statement's cancel over a second connection, and complains where it is cancelled
while it connects. Most statements end sooner by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 1.0


class OutcomeCounts(Generic[T]):
    """How work ended: with a value or with an error."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None = None, error: Exception | None = None) -> None:
        self._value = value
        self.error = error

    def value(self) -> T:
        """Return the value.

        Raises:
            Exception: The error instead.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]


class UncancelledTask(asyncio.Task[OutcomeCounts[T]]):
    """A task that is given `GRACE_SECONDS` to end by itself when it is cancelled.

    It raises no error, for it may end when nobody awaits it: its result holds the error.
    """

    def __init__(self, work: Coroutine[Any, Any, T], *, name: str) -> None:
        self._grace: asyncio.TimerHandle | None = None
        self._caught = _caught(work)
        super().__init__(self._caught, loop=asyncio.get_running_loop(), name=name)
        self._log_destroy_pending = False  # a loop may be closed before it ends: nobody waits for it then

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it unless it ends in time by itself."""
        if self.done():
            return False
        if self._grace is None:
            self._grace = self.get_loop().call_later(GRACE_SECONDS, self.end)
            self.add_done_callback(self._grace_is_over)
        return True

    def end(self) -> None:
        """Cancel it at once."""
        super().cancel()

    def abandon(self) -> None:
        """End it at once, also where its loop is closed and runs it no more."""
        if self.get_loop().is_closed():
            with suppress(Exception):  # cleaning up may want the loop
                self._caught.close()
        else:
            self.end()

    def _grace_is_over(self, _: asyncio.Task[Any]) -> None:
        if self._grace is not None:
            self._grace.cancel()


async def _caught(work: Coroutine[Any, Any, T]) -> OutcomeCounts[T]:
    try:
        return OutcomeCounts(await work)
    except Exception as error:
        return OutcomeCounts(error=error)
