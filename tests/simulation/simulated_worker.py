"""The process of a worker: it runs an embedded worker until it is asked to stop or loses its lease."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from simulation.event_log import EventLog
from simulation.functions import application
from simulation.plan import FaultKind, SimulationSetup
from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimResult
from tidegate.worker.embedded import EmbeddedWorker


@dataclass(eq=False)
class SimulatedWorker:
    """Runs one worker from its start to its end."""

    setup: SimulationSetup
    machine: str
    """The name of the machine it runs on."""
    event_log: EventLog
    """Records workers and drains."""
    rng: random.Random
    """Source of ids, jitter and the pauses between starts."""

    def __post_init__(self) -> None:
        self._ending = asyncio.Event()
        self._grace: float | None = None
        self._worker_id = ""

    async def run(self, store: Store) -> None:
        """Start a worker, retrying while the store cannot be reached; stop it when asked to."""
        worker = await self._enter_worker(store)
        self.event_log.worker_started_at[self.machine] = self.event_log.now()
        await self._ending.wait()
        stop = self.event_log.fault_log.record_start(FaultKind.DRAIN, self.machine)
        await worker.stop(self._grace)
        stop.ended_at = self.event_log.now()

    def drain(self, grace: float | None) -> None:
        """Ask the worker to stop. Its tasks may run on for `grace` seconds; None for the setting."""
        if not self._ending.is_set():
            self._grace = grace
            self._ending.set()

    def on_answer(self, method: str, answer: Any) -> None:
        """Notice in a response of the store that this worker counts as dead.

        If it does not restart by itself, its process ends, as a pool process does under its supervisor.
        """
        is_retired = (method == "extend_leases" and self._worker_id in answer) or (
            method == "claim" and isinstance(answer, ClaimResult) and not answer.is_alive
        )
        if is_retired and not self._ending.is_set():
            self.event_log.injected["worker retired"] += 1
            if not self.setup.may_restart:
                self.drain(0.0)

    async def _enter_worker(self, store: Store) -> EmbeddedWorker:
        app = application(store, self.setup.pool, self.setup.timings)
        while True:
            worker = EmbeddedWorker(
                app,
                [self.setup.pool],
                self.setup.timings,
                rng=random.Random(self.rng.getrandbits(64)),
                threaded=False,
                may_restart=self.setup.may_restart,
            )
            self._worker_id = worker.id
            try:
                return await worker.__aenter__()
            except StoreError:
                await asyncio.sleep(self.rng.uniform(0.1, self.setup.lease / 4))
