"""A worker's process: an embedded worker is entered, and left when told to or when taken for dead."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import Claim
from tidegate.testing.simulation.bodies import application
from tidegate.testing.simulation.journal import Drain, Journal
from tidegate.testing.simulation.plan import Scene
from tidegate.worker.embedded import EmbeddedWorker


class WorkerProcess:
    """Runs one worker from its start to its end.

    Args:
        scene: Pool and times.
        machine: The name of the machine it runs on.
        journal: Told of workers and drains.
        rng: For ids, jitter and the pauses of whoever starts it.
    """

    def __init__(self, scene: Scene, machine: str, journal: Journal, rng: random.Random) -> None:
        self._scene = scene
        self._machine = machine
        self._journal = journal
        self._rng = rng
        self._ending = asyncio.Event()
        self._grace: float | None = None
        self._worker_id = ""

    async def run(self, store: Store) -> None:
        """Enter a worker, trying again while the store is away; leave it when told to."""
        worker = await self._entered(store)
        self._journal.entered[self._machine] = self._journal.now()
        await self._ending.wait()
        drain = Drain(self._machine, worker.id, self._journal.now())
        self._journal.drains.append(drain)
        await worker.stop(self._grace)
        drain.ended_at = self._journal.now()

    def drain(self, grace: float | None) -> None:
        """Tell it to stop, letting tasks go on for so long; None: as its settings say."""
        if not self._ending.is_set():
            self._grace = grace
            self._ending.set()

    def heard(self, method: str, answer: Any) -> None:
        """Notice in an answer of the store that this worker is taken for dead.

        Where it does not begin anew by itself its process ends, as a pool process does under its supervisor.
        """
        is_retired = (method == "beat" and self._worker_id in answer) or (
            method == "claim" and isinstance(answer, Claim) and not answer.alive
        )
        if is_retired and not self._ending.is_set():
            self._journal.injected["worker retired"] += 1
            if not self._scene.begins_anew:
                self.drain(0.0)

    async def _entered(self, store: Store) -> EmbeddedWorker:
        app = application(store, self._scene.pool, self._scene.timings)
        while True:
            worker = EmbeddedWorker(
                app,
                [self._scene.pool],
                self._scene.timings,
                rng=random.Random(self._rng.getrandbits(64)),
                threaded=False,
                begins_anew=self._scene.begins_anew,
            )
            self._worker_id = worker.id
            try:
                return await worker.__aenter__()
            except StoreError:
                await asyncio.sleep(self._rng.uniform(0.1, self._scene.lease / 4))
