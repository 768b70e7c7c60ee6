"""A duty: something done again and again until it is stopped, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from tidegate.errors import StoreError
from tidegate.worker.pause import Pause

log = logging.getLogger("tidegate.steward")


class Duty:
    """Runs `act` every `interval` seconds. Can be stopped twice, or without having started.

    Args:
        name: For logs and the task's name.
        interval: Seconds between the end of one act and the next; varied by a tenth, so that machines spread.
        act: One round; returns whether to go on at once, because there is more to do.
        rng: For jitter.
        interrupted: Told when a round failed.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        act: Callable[[], Awaitable[bool]],
        *,
        rng: random.Random,
        interrupted: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._interval = interval
        self._act = act
        self._rng = rng
        self._interrupted = interrupted
        self._pause = Pause(rng, first=min(0.2, interval), cap=max(5.0, interval))
        self._hurry = asyncio.Event()
        self._job: asyncio.Task[None] | None = None
        self._began_at: float | None = None
        """When the round under way began, by the loop's clock; None: it waits for its next."""

    def busy_seconds(self) -> float:
        """Return for how long its present round has been going on; 0 between two."""
        if self._began_at is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._began_at

    def start(self) -> None:
        """Begin; nothing happens if it runs already."""
        if self._job is None or self._job.done():
            self._job = asyncio.create_task(self._run(), name=f"tidegate duty {self.name}")

    def hurry(self) -> None:
        """Do the next round at once."""
        self._hurry.set()

    async def stop(self) -> None:
        """End it, a round under way included."""
        job, self._job = self._job, None
        if job is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause = self._interval * (0.9 + 0.2 * self._rng.random())
            self._began_at = asyncio.get_running_loop().time()
            try:
                if await self._act():
                    pause = 0.0
                self._pause.reset()
            except StoreError as error:
                pause = self._failed(f"the store is away ({error})")
            except Exception as error:  # one broken round must not end the duty for good
                log.exception("duty %s failed", self.name)
                pause = self._failed(str(error))
            self._began_at = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()
            self._hurry.clear()

    def _failed(self, what: str) -> float:
        if self._interrupted is not None:
            self._interrupted()
        pause = self._pause.next()
        log.warning("duty %s: %s; again in %.1f s", self.name, what, pause)
        return pause
