"""One maintenance job: repeats its work at an interval until stopped, also after errors."""

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
    """Runs `run_once` every `interval` seconds. A job may be stopped twice, or without having started.

    Args:
        name: For logs and the name of the asyncio task.
        interval: Seconds between two rounds; varied by a tenth, so that machines do not act at the same time.
        run_once: Makes one round; returns whether there is more to do at once.
        rng: For jitter.
        on_failure: Called after a round failed.
        busy_interval: Seconds until the next round if there is more to do at once.
        share: The part of the time that rounds may take while there is more to do at once. The job pauses for
            the rest.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        run_once: Callable[[], Awaitable[bool]],
        *,
        rng: random.Random,
        on_failure: Callable[[], None] | None = None,
        busy_interval: float = 0.0,
        share: float = 1.0,
    ) -> None:
        self.name = name
        self._interval = interval
        self._run_once = run_once
        self._rng = rng
        self._on_failure = on_failure
        self._busy_interval = busy_interval
        self._share = share
        self._pause = BackoffDelay(rng, first=min(0.2, interval), cap=max(5.0, interval))
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._started_at: float | None = None
        """When the current round started, by the loop's clock; None between rounds."""

    def busy_seconds(self) -> float:
        """Return how long the current round has been running; 0 between rounds."""
        if self._started_at is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._started_at

    def start(self) -> None:
        """Start the job; do nothing if it runs already."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"tidegate job {self.name}")

    def wake(self) -> None:
        """Start the next round at once."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop the job, and cancel the current round."""
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
                    rest = self.busy_seconds() * (1.0 / self._share - 1.0)
                    pause = max(self._busy_interval, min(pause, rest))
                self._pause.reset()
            except StoreError as error:
                pause = self._report_failure(f"the store is unreachable ({error})")
            except Exception as error:  # one failed round must not end the job for good
                log.exception("maintenance job %s failed", self.name)
                pause = self._report_failure(str(error))
            self._started_at = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()

    def _report_failure(self, reason: str) -> float:
        if self._on_failure is not None:
            self._on_failure()
        pause = self._pause.next()
        log.warning("maintenance job %s: %s; retrying in %.1f s", self.name, reason, pause)
        return pause
