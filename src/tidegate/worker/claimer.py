"""Looks for work: one poll a process, never more tasks than free slots.

A body that runs in a child process needs one that is ready. Where too few are, as while children keep
dying, those tasks are asked for apart and no further than children are ready or being started: the rest
stay in the main queue, and the slots go to tasks that can begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.policy.order import Shares
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimAsk, ClaimedTask, CrashTerms
from tidegate.worker import report
from tidegate.worker.pause import Pause
from tidegate.worker.settings import Pool

CHILDREN_AGAIN_SECONDS = 0.02
"""After there was nothing for children, until they are asked for apart again: it is a claim of its own."""
CLAIM_LIMIT = 500
"""Tasks in one claim at most."""
_LEAST_SECONDS = 0.005
"""Between two looks where limits let tasks through one by one."""
DOUBT_SECONDS = 60.0
"""Between two looks for runs that the store says are ours and we never heard of. A claim may reach the store
long after it was given up: the kernel sends on what a closed connection had still to say, once a network is
back."""


class Share(NamedTuple):
    """What one claim asks for."""

    slots: int
    functions: Mapping[str, CrashTerms]


class Claimer:
    """Claims tasks for one pool process and hands each over.

    Args:
        store: Where from.
        pool: What is served.
        worker_id: Whose row holds the lease.
        functions: What this process can run.
        free: Returns the free slots now.
        unbegun: Returns how many tasks were handed over whose bodies are still to begin.
        in_children: The functions whose bodies run in child processes.
        child_room: Returns how many bodies more can go to child processes soon.
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
        unbegun: Callable[[], int] = lambda: 0,
        in_children: frozenset[str] = frozenset(),
        child_room: Callable[[], int] = lambda: CLAIM_LIMIT,
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
        self._in_children = {name: terms for name, terms in functions.items() if name in in_children}
        self._elsewhere = {name: terms for name, terms in functions.items() if name not in in_children}
        self._free = free
        self._unbegun = unbegun
        self._child_room = child_room
        self._may_start = may_start
        self._take = take
        self._known = known
        self._give_back = give_back
        self._pause = Pause(rng)
        self._shares = Shares(pool.shares)
        self._slot_freed = asyncio.Event()
        self._lacks_children = False
        self._children_again_at = 0.0
        """When tasks for children are asked for apart again, by the loop's clock."""
        self._nap: asyncio.Timeout | None = None
        """Under way while tasks wait for children."""
        self._again_seconds: float | None = None
        """Until a limit lets through more of what the last claims left behind."""

    def slot_freed(self) -> None:
        """Tell that there may be a free slot, or a child that is ready."""
        self._slot_freed.set()
        if self._nap is not None:
            self._nap.reschedule(asyncio.get_running_loop().time())
            self._nap = None

    async def run(self) -> bool:
        """Claim until cancelled. Return False if the store says that this worker is retired."""
        loop = asyncio.get_running_loop()
        in_doubt, doubt_again_at = False, loop.time() + DOUBT_SECONDS
        while True:
            slots = min(self._free(), CLAIM_LIMIT)
            if slots <= 0 or not self._may_start():
                await self._wait_for_slot()
                continue
            if slots < self._unbegun():  # enough to do until more slots are free to be filled together
                await asyncio.sleep(0)
                continue
            try:
                if in_doubt or loop.time() >= doubt_again_at:
                    await self._settle_doubt()
                    in_doubt, doubt_again_at = False, loop.time() + DOUBT_SECONDS
                self._slot_freed.clear()
                more, alive = await self._claim(slots)
                self._pause.reset()
                if not alive:
                    return False
                if not more:
                    await self._wait_for_tasks()
                    continue
            except Exception as error:  # whatever it is, a worker that claims no more would look alive
                in_doubt = True
                pause = self._pause.next()
                report.trouble("looking for work", error, pause)
                await asyncio.sleep(pause)

    async def _claim(self, slots: int) -> tuple[bool, bool]:
        """Fill these slots; return whether there may be more to take at once, and whether we may claim."""
        found = 0
        self._again_seconds = None
        passes_over = self._passes_over_children()
        for share in self._shares_of(slots, passes_over=passes_over):
            claim = await self._store.claim(self._ask(share))
            for task in claim.tasks:
                self._take(task)
            if not claim.alive:
                return False, False
            if share.functions is self._in_children and not claim.tasks:
                self._children_again_at = asyncio.get_running_loop().time() + CHILDREN_AGAIN_SECONDS
            self._shares = self._shares.after(Counter(task.priority for task in claim.tasks), share.slots)
            found += len(claim.tasks)
            self._again_seconds = _sooner(self._again_seconds, claim.again_seconds)
        if passes_over and self._lacks_children and found < slots:
            self._children_again_at = 0.0  # nothing is left elsewhere: look for them now
            return True, True
        return found >= slots, True

    def _passes_over_children(self) -> bool:
        """Whether there was nothing for children a moment ago: with a backlog elsewhere, every claim asks."""
        return asyncio.get_running_loop().time() < self._children_again_at

    def _shares_of(self, slots: int, *, passes_over: bool) -> Iterator[Share]:
        """Yield one share for all functions, or two where fewer children than slots are ready."""
        room = self._child_room() if self._in_children else slots
        self._lacks_children = room < slots
        if room >= slots:
            yield Share(slots, self._functions)
            return
        if room > 0 and not passes_over:
            yield Share(room, self._in_children)
        if self._elsewhere and (left := min(self._free(), slots)) > 0:
            yield Share(left, self._elsewhere)

    def _ask(self, share: Share) -> ClaimAsk:
        return ClaimAsk(
            worker_id=self._worker_id,
            slots=share.slots,
            queues=self._pool.queues,
            functions=share.functions,
            strict=self._pool.strict,
            reserved=self._shares.reserved(),
        )

    async def _settle_doubt(self) -> None:
        """Give back what a claim took whose answer never came: nobody runs it."""
        for fence in await self._store.lost_claims(self._worker_id, self._known()):
            self._give_back(fence)

    async def _wait_for_tasks(self) -> None:
        """Wait until the store may hold tasks for us, or a child is ready where they were too few."""
        if not self._lacks_children:
            await self._store.changed(self._until_next_look())
        elif not self._slot_freed.is_set():
            # In this task and no other: the store tells each asyncio task of a change once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as self._nap:
                    try:
                        await self._store.changed(self._until_next_look())
                    finally:  # also when the claiming is cancelled: a nap that is over cannot be ended
                        self._nap = None

    def _until_next_look(self) -> float:
        """Return the seconds to wait for a change: no longer than until a limit lets more through."""
        if self._again_seconds is None:
            return self._pool.poll_interval
        return min(self._pool.poll_interval, max(_LEAST_SECONDS, self._again_seconds))

    async def _wait_for_slot(self) -> None:
        self._slot_freed.clear()
        if self._free() > 0 and self._may_start():
            return
        try:
            async with asyncio.timeout(self._pool.poll_interval):
                await self._slot_freed.wait()
        except TimeoutError:
            return


def _sooner(one: float | None, other: float | None) -> float | None:
    """Return the smaller of those that are set."""
    return min((each for each in (one, other) if each is not None), default=None)
