"""Whether a service is to stop, and how long its work is waited for then."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidegate.errors import StoreError
from tidegate.worker.backoff_delay import BackoffDelay

T = TypeVar("T")
log = logging.getLogger("tidegate.supervisor")


class StopRequest:
    """The word to stop, of one service.

    Args:
        rng: For jitter.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._requested = asyncio.Event()

    @property
    def is_requested(self) -> bool:
        """Whether it is to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """Have it stop. Safe to repeat."""
        self._requested.set()

    async def wait(self) -> None:
        """Return when it is to stop."""
        await self._requested.wait()

    async def run_unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do the work and return its value; None if the word came first, and it was cancelled for that."""
        job = asyncio.ensure_future(work)
        requested = asyncio.ensure_future(self._requested.wait())
        try:
            await asyncio.wait([job, requested], return_when=asyncio.FIRST_COMPLETED)
        finally:
            requested.cancel()
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)
        return None if job.cancelled() else job.result()

    async def retry_until_stored(
        self, what: str, act: Callable[[], Awaitable[object]], *, last_seconds: float
    ) -> None:
        """Write something, again and again while the store is away; who is stopping tries once.

        Args:
            what: For logs.
            act: Writes it; safe to repeat, also when its answer was lost.
            last_seconds: How long the one try of who is stopping may take.
        """
        pause = BackoffDelay(self._rng)
        while True:
            is_last = self.is_requested
            try:
                if is_last:
                    async with asyncio.timeout(last_seconds):
                        await act()
                elif await self.run_unless_stopped(_return_true(act())) is None:
                    continue
                return
            except (StoreError, TimeoutError) as error:
                if is_last:
                    log.warning("%s: given up while stopping (%s); its lease will run out", what, error)
                    return
                log.warning("%s: the store is away (%s)", what, error)
                await self.run_unless_stopped(asyncio.sleep(pause.next()))


async def _return_true(act: Awaitable[object]) -> bool:
    await act
    return True
