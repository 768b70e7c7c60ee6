"""The request that a service stops, the work that ends with it, and the end of the service."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.worker.backoff_delay import BackoffDelay

T = TypeVar("T")
log = logging.getLogger("tidegate.supervisor")


class StopRequest:
    """Whether one service was asked to stop.

    Args:
        rng: For jitter.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._requested = asyncio.Event()

    @property
    def is_requested(self) -> bool:
        """Whether the service was asked to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """Ask the service to stop. Safe to repeat."""
        self._requested.set()

    async def wait(self) -> None:
        """Return when the service was asked to stop."""
        await self._requested.wait()

    async def run_unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run the work and return its value. If a stop is requested first, cancel it and return None."""
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
        """Retry a write while the store is unreachable. After a stop request, try only once.

        Args:
            what: For logs.
            act: Does the write; safe to repeat, also if its reply was lost.
            last_seconds: Seconds that the single try after a stop request may take.
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
                    log.warning("%s: gave up while stopping (%s); its lease will run out", what, error)
                    return
                log.warning("%s: the store is unreachable (%s); retrying", what, error)
                await self.run_unless_stopped(asyncio.sleep(pause.next()))


async def close_or_exit(store: Store, *, within: float, code: int) -> None:
    """Close a store. If it hangs, end this process, which the store's threads would keep alive.

    Args:
        store: The store. The store's last writes are done or given up.
        within: Seconds to wait.
        code: The exit code if the process ends here.
    """
    try:
        async with asyncio.timeout(within):
            await store.close()
    except TimeoutError:
        log.warning("the store did not close within %g s; this process ends without closing it", within)
        logging.shutdown()
        os._exit(code)


async def _return_true(act: Awaitable[object]) -> bool:
    await act
    return True
