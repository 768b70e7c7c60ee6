"""Renews leases: one update of the worker rows per heartbeat, no matter how many tasks they run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from tidegate.store.protocol import Store
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.settings import Timings


class Heartbeat:
    """Renews the leases of several workers until cancelled.

    Args:
        store: Holds the worker rows.
        timings: Lease and time between heartbeats.
        live_worker_ids: Returns the ids of the workers that are alive and answer now.
        on_renewed: Called with a worker id and the moment until which its lease holds, by the loop's clock.
        on_retired: Called with the id of a worker that was retired.
        rng: For jitter.
    """

    def __init__(
        self,
        *,
        store: Store,
        timings: Timings,
        live_worker_ids: Callable[[], Iterable[str]],
        on_renewed: Callable[[str, float], None],
        on_retired: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._timings = timings
        self._live_worker_ids = live_worker_ids
        self._on_renewed = on_renewed
        self._on_retired = on_retired
        self._pause = BackoffDelay(rng, first=timings.beat / 20, cap=timings.beat / 2)
        self._loop = asyncio.get_running_loop()
        self._ended_at = self._loop.time()

    def silent_seconds(self) -> float:
        """Return how long ago the last heartbeat ended, successful or not."""
        return self._loop.time() - self._ended_at

    async def run(self) -> None:
        """Send heartbeats until cancelled; retry sooner while the store is unreachable."""
        while True:
            try:
                await self.beat()
                self._ended_at = self._loop.time()
                self._pause.reset()
                await asyncio.sleep(self._timings.beat)
            except Exception as error:  # no error may let the leases run out
                self._ended_at = self._loop.time()
                pause = self._pause.next()
                report.will_retry("renewing leases", error, pause)
                await asyncio.sleep(pause)

    async def beat(self) -> None:
        """Renew every lease once.

        Raises:
            StoreError: The leases were not renewed, or it is unknown whether they were.
        """
        ids = list(self._live_worker_ids())
        if not ids:
            return
        good_until = asyncio.get_running_loop().time() + self._timings.lease
        retired = await self._store.extend_leases(ids, self._timings.lease)
        for worker_id in ids:
            if worker_id in retired:
                self._on_retired(worker_id)
            else:
                self._on_renewed(worker_id, good_until)
