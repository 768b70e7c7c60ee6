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
from tidegate.store.rows import ClaimedTask, ClaimRequest, CrashPolicy
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.settings import Pool

CHILD_CLAIM_SECONDS = 0.02
"""After there was nothing for children, until they are asked for apart again: it is a claim of its own."""
CLAIM_LIMIT = 500
"""Tasks in one claim at most."""
_LEAST_SECONDS = 0.005
"""Between two looks where limits let tasks through one by one."""
LOST_CLAIMS_CHECK_SECONDS = 60.0
"""Between two looks for runs that the store says are ours and we never heard of. A claim may reach the store
long after it was given up: the kernel sends on what a closed connection had still to say, once a network is
back."""


class SubClaim(NamedTuple):
    """What one claim asks for."""

    slots: int
    functions: Mapping[str, CrashPolicy]


class Claimer:
    """Claims tasks for one pool process and hands each over.

    Args:
        store: Where from.
        pool: What is served.
        worker_id: Whose row holds the lease.
        functions: What this process can run.
        free_slots: Returns the free slots now.
        not_started: Returns how many tasks were handed over whose bodies are still to begin.
        child_functions: The functions whose bodies run in child processes.
        child_capacity: Returns how many bodies more can go to child processes soon.
        may_start: Returns whether the lease is good for starting work.
        start_task: Takes up one claimed task.
        known_runs: Returns the runs of this process, to find those of a claim whose answer was lost.
        release: Takes the runs of such a claim.
        rng: For jitter.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: Pool,
        worker_id: str,
        functions: dict[str, CrashPolicy],
        free_slots: Callable[[], int],
        not_started: Callable[[], int] = lambda: 0,
        child_functions: frozenset[str] = frozenset(),
        child_capacity: Callable[[], int] = lambda: CLAIM_LIMIT,
        may_start: Callable[[], bool],
        start_task: Callable[[ClaimedTask], object],
        known_runs: Callable[[], Iterable[Fence]],
        release: Callable[[Fence], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._pool = pool
        self._worker_id = worker_id
        self._functions = functions
        self._child_functions = {name: terms for name, terms in functions.items() if name in child_functions}
        self._other_functions = {
            name: terms for name, terms in functions.items() if name not in child_functions
        }
        self._free_slots = free_slots
        self._not_started = not_started
        self._child_capacity = child_capacity
        self._may_start = may_start
        self._start_task = start_task
        self._known_runs = known_runs
        self._release = release
        self._pause = BackoffDelay(rng)
        self._shares = Shares(pool.shares)
        self._slot_freed = asyncio.Event()
        self._lacks_children = False
        self._next_child_claim_at = 0.0
        """When tasks for children are asked for apart again, by the loop's clock."""
        self._child_wait: asyncio.Timeout | None = None
        """Under way while tasks wait for children."""
        self._next_claim_seconds: float | None = None
        """Until a limit lets through more of what the last claims left behind."""

    def notify_slot_freed(self) -> None:
        """Tell that there may be a free slot, or a child that is ready."""
        self._slot_freed.set()
        if self._child_wait is not None:
            self._child_wait.reschedule(asyncio.get_running_loop().time())
            self._child_wait = None

    async def run(self) -> bool:
        """Claim until cancelled. Return False if the store says that this worker is retired."""
        loop = asyncio.get_running_loop()
        may_have_lost_claims, next_check_at = False, loop.time() + LOST_CLAIMS_CHECK_SECONDS
        while True:
            slots = min(self._free_slots(), CLAIM_LIMIT)
            if slots <= 0 or not self._may_start():
                await self._wait_for_slot()
                continue
            if slots < self._not_started():  # enough to do until more slots are free to be filled together
                await asyncio.sleep(0)
                continue
            try:
                if may_have_lost_claims or loop.time() >= next_check_at:
                    await self._release_lost_claims()
                    may_have_lost_claims, next_check_at = False, loop.time() + LOST_CLAIMS_CHECK_SECONDS
                self._slot_freed.clear()
                more, alive = await self._claim(slots)
                self._pause.reset()
                if not alive:
                    return False
                if not more:
                    await self._wait_for_tasks()
                    continue
            except Exception as error:  # whatever it is, a worker that claims no more would look alive
                may_have_lost_claims = True
                pause = self._pause.next()
                report.will_retry("looking for work", error, pause)
                await asyncio.sleep(pause)

    async def _claim(self, slots: int) -> tuple[bool, bool]:
        """Fill these slots; return whether there may be more to take at once, and whether we may claim."""
        found = 0
        self._next_claim_seconds = None
        skip_children = self._skips_children()
        for sub_claim in self._sub_claims(slots, skip_children=skip_children):
            claim = await self._store.claim(self._claim_request(sub_claim))
            for task in claim.tasks:
                self._start_task(task)
            if not claim.is_alive:
                return False, False
            if sub_claim.functions is self._child_functions and not claim.tasks:
                self._next_child_claim_at = asyncio.get_running_loop().time() + CHILD_CLAIM_SECONDS
            self._shares = self._shares.after(Counter(task.priority for task in claim.tasks), sub_claim.slots)
            found += len(claim.tasks)
            self._next_claim_seconds = _smaller(self._next_claim_seconds, claim.next_claim_seconds)
        if skip_children and self._lacks_children and found < slots:
            self._next_child_claim_at = 0.0  # nothing is left elsewhere: look for them now
            return True, True
        return found >= slots, True

    def _skips_children(self) -> bool:
        """Whether there was nothing for children a moment ago: with a backlog elsewhere, every claim asks."""
        return asyncio.get_running_loop().time() < self._next_child_claim_at

    def _sub_claims(self, slots: int, *, skip_children: bool) -> Iterator[SubClaim]:
        """Yield one share for all functions, or two where fewer children than slots are ready."""
        room = self._child_capacity() if self._child_functions else slots
        self._lacks_children = room < slots
        if room >= slots:
            yield SubClaim(slots, self._functions)
            return
        if room > 0 and not skip_children:
            yield SubClaim(room, self._child_functions)
        if self._other_functions and (left := min(self._free_slots(), slots)) > 0:
            yield SubClaim(left, self._other_functions)

    def _claim_request(self, sub_claim: SubClaim) -> ClaimRequest:
        return ClaimRequest(
            worker_id=self._worker_id,
            slots=sub_claim.slots,
            queues=self._pool.queues,
            functions=sub_claim.functions,
            is_strict=self._pool.strict,
            reserved=self._shares.reserved(),
        )

    async def _release_lost_claims(self) -> None:
        """Give back what a claim took whose answer never came: nobody runs it."""
        for fence in await self._store.find_lost_claims(self._worker_id, self._known_runs()):
            self._release(fence)

    async def _wait_for_tasks(self) -> None:
        """Wait until the store may hold tasks for us, or a child is ready where they were too few."""
        if not self._lacks_children:
            await self._store.wait_for_change(self._seconds_until_next_poll())
        elif not self._slot_freed.is_set():
            # In this task and no other: the store tells each asyncio task of a change once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as self._child_wait:
                    try:
                        await self._store.wait_for_change(self._seconds_until_next_poll())
                    finally:  # also when the claiming is cancelled: a nap that is over cannot be ended
                        self._child_wait = None

    def _seconds_until_next_poll(self) -> float:
        """Return the seconds to wait for a change: no longer than until a limit lets more through."""
        if self._next_claim_seconds is None:
            return self._pool.poll_interval
        return min(self._pool.poll_interval, max(_LEAST_SECONDS, self._next_claim_seconds))

    async def _wait_for_slot(self) -> None:
        self._slot_freed.clear()
        if self._free_slots() > 0 and self._may_start():
            return
        try:
            async with asyncio.timeout(self._pool.poll_interval):
                await self._slot_freed.wait()
        except TimeoutError:
            return


def _smaller(one: float | None, other: float | None) -> float | None:
    """Return the smaller of those that are set."""
    return min((each for each in (one, other) if each is not None), default=None)
