"""Looks for work: one poll a process, never more tasks than free slots."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable

from tidegate.domain.outcome import Fence
from tidegate.policy.order import Shares
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimAsk, ClaimedTask, CrashTerms
from tidegate.worker import report
from tidegate.worker.pause import Pause
from tidegate.worker.settings import Pool

CLAIM_LIMIT = 500
"""Tasks in one claim at most."""


class Claimer:
    """Claims tasks for one pool process and hands each over.

    Args:
        store: Where from.
        pool: What is served.
        worker_id: Whose row holds the lease.
        functions: What this process can run.
        free: Returns the free slots now.
        may_start: Returns whether the lease is good for starting work.
        take: Takes up one claimed task.
        known: Returns the runs this process knows of, for finding those of a claim whose answer was lost.
        give_back: Takes the runs of such a claim.
        rng: For jitter.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: Pool,
        worker_id: str,
        functions: dict[str, CrashTerms],
        free: Callable[[], int],
        may_start: Callable[[], bool],
        take: Callable[[ClaimedTask], object],
        known: Callable[[], Iterable[Fence]],
        give_back: Callable[[Fence], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._pool = pool
        self._worker_id = worker_id
        self._functions = functions
        self._free = free
        self._may_start = may_start
        self._take = take
        self._known = known
        self._give_back = give_back
        self._pause = Pause(rng)
        self._shares = Shares(pool.shares)
        self._slot_freed = asyncio.Event()

    def slot_freed(self) -> None:
        """Tell that there may be a free slot."""
        self._slot_freed.set()

    async def run(self) -> bool:
        """Claim until cancelled. Return False if the store says that this worker is retired."""
        in_doubt = False
        while True:
            slots = min(self._free(), CLAIM_LIMIT)
            if slots <= 0 or not self._may_start():
                await self._wait_for_slot()
                continue
            try:
                if in_doubt:
                    await self._settle_doubt()
                    in_doubt = False
                found, alive = await self._claim(slots)
                self._pause.reset()
                if not alive:
                    return False
                if found < slots:
                    await self._store.changed(self._pool.poll_interval)
                    continue
            except Exception as error:  # whatever it is, a worker that claims no more would look alive
                in_doubt = True
                pause = self._pause.next()
                report.trouble("looking for work", error, pause)
                await asyncio.sleep(pause)
                continue
            await asyncio.sleep(0)  # let what was taken start, so that freed slots are claimed together

    async def _claim(self, slots: int) -> tuple[int, bool]:
        ask = ClaimAsk(
            worker_id=self._worker_id,
            slots=slots,
            queues=self._pool.queues,
            functions=self._functions,
            strict=self._pool.strict,
            reserved=self._shares.reserved(),
        )
        claim = await self._store.claim(ask)
        for task in claim.tasks:
            self._take(task)
        self._shares = self._shares.after(Counter(task.priority for task in claim.tasks), slots)
        return len(claim.tasks), claim.alive

    async def _settle_doubt(self) -> None:
        """Give back what a claim took whose answer never came: nobody runs it."""
        for fence in await self._store.lost_claims(self._worker_id, self._known()):
            self._give_back(fence)

    async def _wait_for_slot(self) -> None:
        self._slot_freed.clear()
        if self._free() > 0 and self._may_start():
            return
        try:
            async with asyncio.timeout(self._pool.poll_interval):
                await self._slot_freed.wait()
        except TimeoutError:
            return
