"""Factories for the tests of every store: tasks in any state, made through the contract itself."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from tidegate.codec.tags import CODEC
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.ids import IdMaker
from tidegate.domain.outcome import Charge, Dead, Fence, FinishStatus, Outcome, Retrying, Succeeded
from tidegate.domain.retention import Retention
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, ClaimRequest, CrashPolicy, NewTask, TaskRow
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.maintenance.retention import RetentionSweep

START = 1_800_000_000.0
"""The time at which tests begin: the start of a minute."""

FAILED = Failure(
    Verdict.TRANSIENT, Reason.NETWORK, message="connection reset", error_class="builtins.OSError"
)
ALL = ("*",)


class SettableClock:
    """The store's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Build:
    """Makes tasks, workers and outcomes with good defaults."""

    def __init__(self, store: Store, clock: SettableClock) -> None:
        self.store = store
        self.clock = clock
        self._ids = IdMaker(lambda: int(clock.now * 1000), random.Random(7).getrandbits)
        self._numbers = itertools.count(1)

    # --- values ---

    def id(self) -> str:
        """Return a task id larger than all before."""
        return self._ids()

    def new(self, **changes: Any) -> NewTask:
        """Return a task to store."""
        given: dict[str, Any] = {
            "id": self.id(),
            "function": "app:work",
            "queue": "main",
            "priority": Priority.NORMAL,
            "args": b'{"n":1}',
            "codec_tag": CODEC,
            "fingerprint": b"same",
        }
        return NewTask(**given | changes)

    def request(self, worker: str, slots: int = 100, **changes: Any) -> ClaimRequest:
        """Return a claim of all tasks by a worker that knows only `app:work`."""
        given: dict[str, Any] = {"queues": ALL, "functions": {"app:work": CrashPolicy()}}
        return ClaimRequest(worker, slots, **given | changes)

    # --- rows ---

    async def worker(self, lease: float = 30.0, **changes: Any) -> str:
        """Register a worker; return its id."""
        number = next(self._numbers)
        given: dict[str, Any] = {
            "id": f"worker-{number}",
            "name": "w",
            "pool": "default",
            "host": "here",
            "pid": 1000 + number,
            "queues": ALL,
            "slots": 100,
            "lease_seconds": lease,
        }
        worker = NewWorker(**given | changes)
        await self.store.add_worker(worker)
        return worker.id

    async def enqueue(self, count: int = 1, **changes: Any) -> list[str]:
        """Store tasks; return their ids."""
        stored = await self.store.enqueue([self.new(**changes) for _ in range(count)])
        return [answer.task_id for answer in stored]

    async def one(self, **changes: Any) -> str:
        """Store one task; return its id."""
        return (await self.enqueue(**changes))[0]

    async def running(
        self, count: int = 1, *, worker: str | None = None, **changes: Any
    ) -> list[ClaimedTask]:
        """Store tasks, in a separate queue unless one is named, and claim them."""
        queue = changes.setdefault("queue", f"queue-{next(self._numbers)}")
        ids = await self.enqueue(count, **changes)
        tasks = await self.claim(worker or await self.worker(), count, queues=(queue,))
        assert sorted(task.fence.task_id for task in tasks) == sorted(ids)
        return tasks

    async def run(self, **changes: Any) -> ClaimedTask:
        """Store one task and claim it."""
        return (await self.running(**changes))[0]

    async def claim(self, worker: str, slots: int = 100, **changes: Any) -> list[ClaimedTask]:
        """Claim, as a worker that is alive."""
        claim = await self.store.claim(self.request(worker, slots, **changes))
        assert claim.is_alive
        return list(claim.tasks)

    async def in_state(self, state: State, **changes: Any) -> str:
        """Return a task in this state, brought there by the shortest path."""
        if state is State.SCHEDULED:
            return await self.one(**{"delay_seconds": 600.0} | changes)
        if state is State.READY:
            return await self.one(**changes)
        if state is State.CANCELLED:
            task_id = await self.one(**changes)
            await self.store.cancel([task_id])
            return task_id
        fence = (await self.run(**changes)).fence
        if state is State.SUCCEEDED:
            await self.done(succeeded(fence))
        elif state is State.RETRYING:
            await self.done(retrying(fence, delay=600.0))
        elif state is State.DEAD:
            await self.done(dead(fence))
        return fence.task_id

    async def done(self, *outcomes: Outcome) -> None:
        """Write outcomes that must all be accepted."""
        answers = await self.store.finish(outcomes)
        assert answers == [FinishStatus.DONE] * len(outcomes)

    async def orphaned(self, count: int = 1, *, loss: bool = True, **changes: Any) -> list[ClaimedTask]:
        """Return runs whose worker is retired."""
        worker = await self.worker()
        tasks = await self.running(count, worker=worker, **changes)
        assert await self.store.retire_worker(
            worker, why="lease ran out", is_loss=loss, only_if_expired=False
        )
        return tasks

    # --- looks ---

    async def row(self, task_id: str) -> TaskRow:
        """Return a task's row; it must exist."""
        return (await self.store.read_tasks([task_id]))[task_id]

    async def state(self, task_id: str) -> State:
        """Return a task's state."""
        return (await self.row(task_id)).state

    async def states(self, ids: Sequence[str]) -> dict[str, State]:
        """Return the states of the tasks that exist."""
        return {task_id: row.state for task_id, row in (await self.store.read_tasks(ids)).items()}

    async def sound(self) -> None:
        """Check that the store's integrity check finds no problem."""
        assert await self.store.check_integrity() == []


async def expire(store: Store, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000) -> int:
    """Remove what is kept no longer, as maintenance does, one batch of each kind; return how many rows."""
    removed = 0
    for rules in ({"finished": finished_seconds, "dead": inf}, {"finished": inf, "dead": dead_seconds}):
        sweep = RetentionSweep(store, Retention(**rules), clock=time.monotonic, batch=limit)
        removed += await sweep.run_once() or 0
    return removed + await store.delete_expired(ticks_seconds=finished_seconds, limit=limit)


def succeeded(fence: Fence, result: bytes = b'"done"') -> Succeeded:
    return Succeeded(fence, result, CODEC)


def retrying(
    fence: Fence,
    *,
    delay: float = 10.0,
    failure: Failure = FAILED,
    charge: Charge = Charge.ATTEMPT,
    offset: float = 60.0,
    why: str = "backoff",
    rule: str = "",
) -> Retrying:
    return Retrying(fence, failure, delay, charge, offset, why, rule)


def dead(
    fence: Fence,
    *,
    failure: Failure = FAILED,
    charge: Charge = Charge.ATTEMPT,
    why: str = "attempts are spent",
) -> Dead:
    return Dead(fence, failure, charge, why)


def ids_of(tasks: Sequence[ClaimedTask]) -> list[str]:
    return [task.fence.task_id for task in tasks]


def terms(*functions: str) -> Mapping[str, CrashPolicy]:
    return dict.fromkeys(functions, CrashPolicy())
