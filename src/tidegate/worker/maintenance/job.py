"""A duty: something done again and again until it is stopped, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from tidegate.errors import StoreError
from tidegate.worker.backoff_delay import BackoffDelay

log = logging.getLogger("tidegate.maintenance")


class MaintenanceJob:
    """Runs `run_once` every `interval` seconds. Can be stopped twice, or without having started.

    Args:
        name: For logs and the task's name.
        interval: Seconds between the end of one act and the next; varied by a tenth, so that machines spread.
        run_once: One round; returns whether to go on at once, because there is more to do.
        rng: For jitter.
        on_failure: Told when a round failed.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        run_once: Callable[[], Awaitable[bool]],
        *,
        rng: random.Random,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._interval = interval
        self._run_once = run_once
        self._rng = rng
        self._on_failure = on_failure
        self._pause = BackoffDelay(rng, first=min(0.2, interval), cap=max(5.0, interval))
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._started_at: float | None = None
        """When the round under way began, by the loop's clock; None: it waits for its next."""

    def busy_seconds(self) -> float:
        """Return for how long its present round has been going on; 0 between two."""
        if self._started_at is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._started_at

    def start(self) -> None:
        """Begin; nothing happens if it runs already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"tidegate job {self.name}")

    def wake(self) -> None:
        """Do the next round at once."""
        self._woken.set()

    async def stop(self) -> None:
        """End it, a round under way included."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause = self._interval * (0.9 + 0.2 * self._rng.random())
            self._started_at = asyncio.get_running_loop().time()
            try:
                if await self._run_once():
                    pause = 0.0
                self._pause.reset()
            except StoreError as error:
                pause = self._report_failure(f"the store is away ({error})")
            except Exception as error:  # one broken round must not end the duty for good
                log.exception("maintenance job %s failed", self.name)
                pause = self._report_failure(str(error))
            self._started_at = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()

    def _report_failure(self, what: str) -> float:
        if self._on_failure is not None:
            self._on_failure()
        pause = self._pause.next()
        log.warning("maintenance job %s: %s; again in %.1f s", self.name, what, pause)
        return pause
