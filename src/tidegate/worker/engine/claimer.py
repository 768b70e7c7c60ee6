"""Claims tasks from the store: one poll per pool process, never more tasks than free slots.

Usually one claim takes tasks of all functions. Some functions are claimed separately while they have less
room than others:

- A function that runs in a child process needs one that is ready. Too few may be ready, for example because
  child processes keep dying. Then at most one task is claimed for each process that is ready or starting. The
  other tasks stay in the queue, and the slots go to tasks that can start.
- The slots of some functions grow (`slots.py`), and those of the others do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.policy.order import Shares
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, ClaimRequest, CrashPolicy
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.slots import SlotRoom
from tidegate.worker.settings import Pool

CHILD_CLAIM_SECONDS = 0.02
"""Pause between two separate claims for child processes, if the first one found nothing."""
CLAIM_LIMIT = 500
"""At most this many tasks in one claim."""
_LEAST_SECONDS = 0.005
"""Shortest time between two polls while limits admit tasks one by one."""
LOST_CLAIMS_CHECK_SECONDS = 60.0
"""Time between checks for runs that the store assigns to this worker but that it does not know. A claim may
reach the store long after the worker gave it up: the kernel still sends the data of a closed connection once
the network is back."""


class SubClaim(NamedTuple):
    """How many tasks of which functions one claim requests."""

    slots: int
    functions: Mapping[str, CrashPolicy]


class _Kinds(NamedTuple):
    """The functions of a process by kind, and two kinds together."""

    children: Mapping[str, CrashPolicy]
    others: Mapping[str, CrashPolicy]
    growing: Mapping[str, CrashPolicy]
    without_growing: Mapping[str, CrashPolicy]


def _kinds(functions: Mapping[str, CrashPolicy], children: Container[str], growing: Container[str]) -> _Kinds:
    without_growing = {name: policy for name, policy in functions.items() if name not in growing}
    return _Kinds(
        {name: policy for name, policy in without_growing.items() if name in children},
        {name: policy for name, policy in without_growing.items() if name not in children},
        {name: policy for name, policy in functions.items() if name in growing},
        without_growing,
    )


class Claimer:
    """Claims tasks for one pool process and starts each task.

    Args:
        store: Holds the tasks.
        pool: The pool to serve.
        worker_id: The worker whose row holds the lease.
        functions: The functions that this process can run.
        room: Returns how many more tasks of each kind may start now.
        growing: Returns the functions whose slots grow.
        not_started: Returns how many claimed tasks have not started their function yet.
        child_functions: The functions that run in child processes.
        child_capacity: Returns how many more tasks can get a child process soon.
        may_start: Returns whether the lease holds, so that tasks may start.
        start_task: Starts one claimed task.
        known_runs: Returns the runs of this process, to find runs of a claim whose reply was lost.
        release: Releases a run that belongs to such a claim.
        rng: For jitter.
    """

    def __init__(
        self,
        *,
        store: Store,
        pool: Pool,
        worker_id: str,
        functions: dict[str, CrashPolicy],
        room: Callable[[], SlotRoom],
        growing: Callable[[], frozenset[str]] = frozenset,
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
        self._child_names = child_functions
        self._room = room
        self._growing = growing
        self._kinds = _kinds(functions, child_functions, frozenset())
        self._not_started = not_started
        self._child_capacity = child_capacity
        self._may_start = may_start
        self._start_task = start_task
        self._known_runs = known_runs
        self._release = release
        self._pause = BackoffDelay(rng)
        self._shares = Shares(pool.shares)
        self._slot_freed = asyncio.Event()
        self._is_partial = False
        """Whether the last claim left out functions that had no room. They are claimed once there is room."""
        self._lacks_children = False
        self._next_child_claim_at = 0.0
        """When to claim for child processes separately again, by the loop's clock."""
        self._child_wait: asyncio.Timeout | None = None
        """Whether tasks wait for child processes."""
        self._next_claim_seconds: float | None = None
        """Seconds until a limit admits more of the tasks that the last claim left behind."""

    def notify_slot_freed(self) -> None:
        """Wake the claimer: a slot may be free, or a child process may be ready."""
        self._slot_freed.set()
        if self._child_wait is not None:
            self._child_wait.reschedule(asyncio.get_running_loop().time())
            self._child_wait = None

    async def run(self) -> bool:
        """Claim until cancelled. Return False if this worker was retired."""
        loop = asyncio.get_running_loop()
        may_have_lost_claims, next_check_at = False, loop.time() + LOST_CLAIMS_CHECK_SECONDS
        while True:
            slots = min(sum(self._room()), CLAIM_LIMIT)
            if slots <= 0 or not self._may_start():
                await self._wait_for_slot()
                continue
            if slots < self._not_started():  # wait until more slots are free, and fill them in one claim
                await asyncio.sleep(0)
                continue
            try:
                if may_have_lost_claims or loop.time() >= next_check_at:
                    await self._release_lost_claims()
                    may_have_lost_claims, next_check_at = False, loop.time() + LOST_CLAIMS_CHECK_SECONDS
                self._slot_freed.clear()
                may_have_more, is_alive = await self._claim()
                self._pause.reset()
                if not is_alive:
                    return False
                if not may_have_more:
                    await self._wait_for_tasks()
                    continue
            except Exception as error:  # a worker that stopped claiming would still look alive
                may_have_lost_claims = True
                pause = self._pause.next()
                report.will_retry("claiming tasks", error, pause)
                await asyncio.sleep(pause)

    async def _claim(self) -> tuple[bool, bool]:
        """Fill the free slots. Return whether there may be more tasks, and whether this worker is alive."""
        may_have_more = False
        self._next_claim_seconds = None
        skip_children = self._skips_children()
        for sub_claim in self._sub_claims(skip_children=skip_children):
            claim = await self._store.claim(self._claim_request(sub_claim))
            for task in claim.tasks:
                self._start_task(task)
            if not claim.is_alive:
                return False, False
            if sub_claim.functions is self._kinds.children and not claim.tasks:
                self._next_child_claim_at = asyncio.get_running_loop().time() + CHILD_CLAIM_SECONDS
            self._shares = self._shares.after(Counter(task.priority for task in claim.tasks), sub_claim.slots)
            may_have_more |= len(claim.tasks) >= sub_claim.slots
            self._next_claim_seconds = _smaller(self._next_claim_seconds, claim.next_claim_seconds)
        if skip_children and self._lacks_children and not may_have_more:
            self._next_child_claim_at = 0.0  # nothing else is ready: claim for child processes now
            return True, True
        return may_have_more, True

    def _skips_children(self) -> bool:
        """Whether a claim for child processes has just found nothing."""
        return asyncio.get_running_loop().time() < self._next_child_claim_at

    def _sub_claims(self, *, skip_children: bool) -> Iterator[SubClaim]:
        """Yield one claim for all functions, or one for each kind of functions if their room differs."""
        if (growing := self._growing()) != self._kinds.growing.keys():
            self._kinds = _kinds(self._functions, self._child_names, growing)
        kinds, room = self._kinds, self._room()
        children = min(self._child_capacity(), room.others) if kinds.children else room.others
        self._lacks_children = children < room.others
        self._is_partial = self._lacks_children or (bool(kinds.growing) and 0 in room)
        if self._is_partial or (kinds.growing and not 0.5 <= room.growing / room.others <= 2):
            if self._lacks_children and children > 0 and not skip_children:
                yield SubClaim(children, kinds.children)
            others = kinds.others if self._lacks_children else kinds.without_growing
            if others and (left := self._room().others) > 0:
                yield SubClaim(min(left, CLAIM_LIMIT), others)
            if kinds.growing and (left := self._room().growing) > 0:
                yield SubClaim(min(left, CLAIM_LIMIT), kinds.growing)
        else:
            slots = min(room) if kinds.growing else room.others
            yield SubClaim(min(slots, CLAIM_LIMIT), self._functions)

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
        """Release the tasks of claims whose reply never arrived: nothing runs these tasks."""
        for fence in await self._store.find_lost_claims(self._worker_id, self._known_runs()):
            self._release(fence)

    async def _wait_for_tasks(self) -> None:
        """Wait until the store may have tasks for us, or a child process that tasks waited for is ready."""
        if not self._is_partial:
            await self._store.wait_for_change(self._seconds_until_next_poll())
        elif not self._slot_freed.is_set():
            # In this asyncio task: the store notifies each asyncio task of a change once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as self._child_wait:
                    try:
                        await self._store.wait_for_change(self._seconds_until_next_poll())
                    finally:  # also after a cancellation: a timeout that has ended cannot be rescheduled
                        self._child_wait = None

    def _seconds_until_next_poll(self) -> float:
        """Return how long to wait for a change: at most until a limit admits more tasks."""
        if self._next_claim_seconds is None:
            return self._pool.poll_interval
        return min(self._pool.poll_interval, max(_LEAST_SECONDS, self._next_claim_seconds))

    async def _wait_for_slot(self) -> None:
        self._slot_freed.clear()
        if any(self._room()) and self._may_start():
            return
        try:
            async with asyncio.timeout(self._pool.poll_interval):
                await self._slot_freed.wait()
        except TimeoutError:
            return


def _smaller(first: float | None, second: float | None) -> float | None:
    """Return the smaller of two values; None counts as no limit."""
    return min((value for value in (first, second) if value is not None), default=None)
