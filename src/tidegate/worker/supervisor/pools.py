"""All pool processes of one worker: as many as the pools say, registered, and retired when they are dead."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tidegate._version import __version__
from tidegate.store.protocol import Store
from tidegate.store.rows import NewWorker
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.supervisor.child import Child
from tidegate.worker.supervisor.keeper import Keeper
from tidegate.worker.supervisor.loops import CrashLoop
from tidegate.worker.supervisor.stopping import Stopping
from tidegate.worker.supervisor.zombies import Zombies

log = logging.getLogger("tidegate.supervisor")


@dataclass(frozen=True, slots=True)
class Terms:
    """What every pool process of a worker is started with, and is known by."""

    application: str
    name: str
    """Of the worker."""
    timings: Timings
    database_url: str | None
    """None: the application's own."""


class Pools:
    """Keeps the pool processes.

    Args:
        terms: What they are started with.
        store: Where their rows are.
        stopping: The worker's.
        zombies: Told while a process is started.
        rng: For jitter.
        retired: Called when runs of a dead process can be taken up again.
        refused: Called when a process says that the set-up is wrong; returns whether the worker stops for it.
        had_to_kill: Called when, while the worker stops, a process had to be killed.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        store: Store,
        stopping: Stopping,
        zombies: Zombies,
        rng: random.Random,
        retired: Callable[[], Awaitable[None]],
        refused: Callable[[Pool], bool],
        had_to_kill: Callable[[], None],
    ) -> None:
        self._terms = terms
        self._store = store
        self._stopping = stopping
        self._zombies = zombies
        self._rng = rng
        self._retired = retired
        self.set_up_is_wrong = refused
        self.had_to_kill = had_to_kill
        self._places: dict[tuple[str, int], Keeper] = {}
        """By pool and number: who keeps a process there."""
        self._keeping: dict[asyncio.Task[None], Keeper] = {}
        """Those, and the ones whose place is gone and whose last process still ends."""
        self._loops: dict[str, CrashLoop] = {}

    def __len__(self) -> int:
        return len(self._places)

    def children(self) -> list[Child]:
        """Return the living processes."""
        return [keeper.child for keeper in self._keeping.values() if keeper.child is not None]

    def child(self, worker_id: str) -> Child | None:
        """Return one of them by its worker's id."""
        return next((child for child in self.children() if child.worker_id == worker_id), None)

    def ready(self) -> int:
        """Return how many take tasks, with a lease that holds."""
        now = time.monotonic()
        present = [keeper.child for keeper in self._places.values() if keeper.is_ready]
        return sum(child is not None and child.good_until > now for child in present)

    def crash_loops(self) -> list[str]:
        """Return a sentence for each pool whose processes die again and again."""
        return [words for loop in self._loops.values() if (words := loop.in_words())]

    def fit(self, pools: Sequence[Pool], grace: float) -> list[Keeper]:
        """Keep as many processes as these pools say; return those keepers that were there before.

        Args:
            pools: What is wanted.
            grace: Seconds the tasks of those that are not wanted any more may go on.
        """
        wanted = {(pool.name, number): pool for pool in pools for number in range(pool.processes)}
        for place in self._places.keys() - wanted.keys():
            self._places.pop(place).stop(grace)
        kept = list(self._places.values())
        for place, pool in wanted.items():
            if place in self._places:
                self._places[place].pool = pool
            else:
                self._places[place] = self._keep(pool)
        return kept

    async def until_all_ended(self, beside: Iterable[asyncio.Task[None]]) -> None:
        """Wait until no process is kept any more.

        Args:
            beside: Jobs that must go on meanwhile.

        Raises:
            Exception: One of those has ended, or a keeper has failed. Better to end, and to be started anew,
                than to go on with half of a supervisor.
        """
        while self._keeping:
            ended, _ = await asyncio.wait([*self._keeping, *beside], return_when=asyncio.FIRST_COMPLETED)
            for job in ended:
                job.result()
                self._keeping.pop(job, None)

    def stop(self, grace: float) -> None:
        """Let every process end within `grace` seconds, and start none after it."""
        for keeper in self._keeping.values():
            keeper.stop(grace)

    def give_back(self) -> None:
        """Have every process give its tasks back and end now."""
        for child in self.children():
            child.release()

    def pass_on(self, number: signal.Signals) -> None:
        """Send every process a signal."""
        for child in self.children():
            child.send_signal(number)

    def _keep(self, pool: Pool) -> Keeper:
        loop = self._loops.setdefault(pool.name, CrashLoop(pool.name, time.monotonic))
        keeper = Keeper(pool, office=self, loop=loop, rng=self._rng)
        self._keeping[asyncio.create_task(keeper.run(), name=f"tidegate pool {pool.name}")] = keeper
        return keeper

    # --- what a keeper asks for --------------------------------------------------------------------------

    async def start(self, pool: Pool, keeper: Keeper) -> Child:
        """Start a child, have the keeper hold it, and register it.

        Raises:
            OSError: No process is to be had.
        """
        terms = self._terms
        child = Child(
            application=terms.application, pool=pool, timings=terms.timings, database_url=terms.database_url
        )
        with self._zombies.left_alone():
            await child.start()
            keeper.hold(child)
        row = NewWorker(
            id=child.worker_id,
            name=terms.name,
            pool=pool.name,
            host=socket.gethostname(),
            pid=child.pid,
            queues=pool.queues,
            slots=pool.concurrency,
            lease_seconds=terms.timings.lease,
            version=__version__,
            application=terms.application,
        )
        asked_at = time.monotonic()
        await self._until_stored("registering a process", lambda: self._store.add_worker(row))
        child.is_registered = True
        child.renewed(asked_at + terms.timings.lease)
        return child

    async def retire(self, child: Child, why: str) -> None:
        """Retire a dead process's row; its pid is reaped and its group killed, so nothing of it runs on."""
        await self._until_stored(
            "retiring a process",
            lambda: self._store.retire_worker(
                child.worker_id, why=why, loss=False, only_if_expired=False, culprit=child.culprit
            ),
        )
        await self._retired()

    async def _until_stored(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        await self._stopping.until_stored(what, act, last_seconds=self._terms.timings.stop_grace)
