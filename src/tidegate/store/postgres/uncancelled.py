"""Work that continues for a moment after its caller was cancelled, so that its connection can be kept.

asyncpg cancels a statement over a second connection, and logs errors if it is cancelled while it opens that
connection. Most statements end sooner by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 1.0


class WorkResult(Generic[T]):
    """The result of work: a value or an error."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None = None, error: Exception | None = None) -> None:
        self._value = value
        self.error = error

    def value(self) -> T:
        """Return the value, or raise the error.

        Raises:
            Exception: The error of the work.
        """
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]


class UncancelledTask(asyncio.Task[WorkResult[T]]):
    """A task that has `GRACE_SECONDS` to end by itself after it is cancelled.

    The asyncio task raises no error, because it may end when no code awaits it. Its result contains the
    error.
    """

    def __init__(self, work: Coroutine[Any, Any, T], *, name: str) -> None:
        self._grace: asyncio.TimerHandle | None = None
        self._caught = _caught(work)
        super().__init__(self._caught, loop=asyncio.get_running_loop(), name=name)
        self._log_destroy_pending = False  # its loop may be closed before it ends; then nothing waits for it

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task unless it ends within `GRACE_SECONDS`."""
        if self.done():
            return False
        if self._grace is None:
            self._grace = self.get_loop().call_later(GRACE_SECONDS, self.end)
            self.add_done_callback(self._grace_is_over)
        return True

    def end(self) -> None:
        """Cancel the task now."""
        super().cancel()

    def abandon(self) -> None:
        """End the task now, even if its loop is closed and no longer runs it."""
        if self.get_loop().is_closed():
            with suppress(Exception):  # cleaning up may need the loop
                self._caught.close()
        else:
            self.end()

    def _grace_is_over(self, _: asyncio.Task[Any]) -> None:
        if self._grace is not None:
            self._grace.cancel()


async def _caught(work: Coroutine[Any, Any, T]) -> WorkResult[T]:
    try:
        return WorkResult(await work)
    except Exception as error:
        return WorkResult(error=error)
