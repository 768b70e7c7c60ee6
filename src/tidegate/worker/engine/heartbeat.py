"""Keeps leases: one update of the worker rows a beat, however many tasks they run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from tidegate.store.protocol import Store
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.settings import Timings


class Heartbeat:
    """Renews the leases of some workers until cancelled.

    Args:
        store: Where the worker rows are.
        timings: Lease and beat.
        live_worker_ids: Returns the ids of the workers that live and answer now.
        on_renewed: Told an id and until when its lease is good, by the loop's clock.
        on_retired: Told an id that the store has retired.
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
        """Return how long ago a round ended last, whether it was answered or not."""
        return self._loop.time() - self._ended_at

    async def run(self) -> None:
        """Beat until cancelled; while the store is away, try again sooner."""
        while True:
            try:
                await self.beat()
                self._ended_at = self._loop.time()
                self._pause.reset()
                await asyncio.sleep(self._timings.beat)
            except Exception as error:  # whatever it is, leases must not run out for it
                self._ended_at = self._loop.time()
                pause = self._pause.next()
                report.will_retry("renewing leases", error, pause)
                await asyncio.sleep(pause)

    async def beat(self) -> None:
        """Renew every lease once.

        Raises:
            StoreError: Not renewed, or not known whether.
        """
        ids = list(self._live_worker_ids())
        if not ids:
            return
        good_until = asyncio.get_running_loop().time() + self._timings.lease
        gone = await self._store.extend_leases(ids, self._timings.lease)
        for worker_id in ids:
            if worker_id in gone:
                self._on_retired(worker_id)
            else:
                self._on_renewed(worker_id, good_until)
