"""All duties of one steward, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import WorkerRow
from tidegate.worker.settings import Timings
from tidegate.worker.steward.capacity import CapacityWatch
from tidegate.worker.steward.duty import Duty
from tidegate.worker.steward.reap import Reaper

SWEEP_SECONDS = 60.0
CAPACITY_SECONDS = 60.0
SWEEP_LIMIT = 1_000
UNSTAGE_LIMIT = 5_000
FORGET_WORKERS_SECONDS = 86_400.0


class Steward:
    """Does the housekeeping of a store until it is stopped.

    Args:
        store: An open store.
        timings: Intervals and retention times.
        rng: For jitter.
        clock: Monotonic seconds.
        lost: Told of each worker that was retired because its lease ran out.
    """

    def __init__(
        self,
        store: Store,
        timings: Timings,
        *,
        rng: random.Random,
        clock: Callable[[], float],
        lost: Callable[[WorkerRow], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._timings = timings
        self._reaper = Reaper(store, interval=timings.reap, lease=timings.lease, clock=clock, lost=lost)
        self._reap = Duty(
            "reap", timings.reap, self._reaper.act, rng=rng, interrupted=self._reaper.interrupted
        )
        self._duties = [
            Duty("promote", timings.promote, self._promote, rng=rng),
            self._reap,
            Duty("sweep", SWEEP_SECONDS, self._sweep, rng=rng),
            Duty("capacity", CAPACITY_SECONDS, CapacityWatch(store).act, rng=rng),
        ]

    def start(self) -> None:
        """Begin every duty."""
        for duty in self._duties:
            duty.start()

    async def stop(self) -> None:
        """End every duty."""
        await asyncio.gather(*(duty.stop() for duty in self._duties))

    def busy_seconds(self) -> float:
        """Return how long the longest round under way has been going on: a duty that hangs."""
        return max(duty.busy_seconds() for duty in self._duties)

    async def take_up_orphans(self) -> None:
        """Decide the runs of retired workers now; if the store is away, as soon as it is back."""
        self._reap.hurry()

    async def take_up_the_last(self, within: float) -> None:
        """Decide the runs of retired workers before this process ends, unless the store is away."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(within):
                await self._reaper.bury_and_retry()

    async def _promote(self) -> bool:
        unstaged = await self._store.unstage(UNSTAGE_LIMIT)
        moved = await self._store.promote(self._timings.promote_batch)
        return moved >= self._timings.promote_batch or unstaged > 0

    async def _sweep(self) -> bool:
        gone = await self._store.sweep(
            finished_seconds=self._timings.retention_finished,
            dead_seconds=self._timings.retention_dead,
            limit=SWEEP_LIMIT,
        )
        await self._store.forget_workers(FORGET_WORKERS_SECONDS)
        await self._store.checkpoint()
        return gone >= SWEEP_LIMIT
