"""The clients of a run: they enqueue, cancel, redrive, reprioritise, run now, purge and wait for results.

The responses go to the event log. A client without a response resends with the same id, or gives up. A client
that crashes leaves everything as it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from checker import digest_of
from harness.relations import SentMap, event_name, event_value
from simulation.event_log import EventLog
from simulation.functions import MAPPED_FUNCTION
from simulation.plan import SimulationSetup
from simulation.tasks import TaskFactory
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.errors import (
    KeyConflictError,
    StoreError,
    TaskCancelledError,
    TaskFailedError,
    TaskNotFoundError,
    WrongStateError,
)
from tidegate.handle import Handle
from tidegate.operations.send_event import send_event
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.store.map_rows import NewMap
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, NewTask, TaskFilter

T = TypeVar("T")
Action = Callable[[], Awaitable[None]]

_RECENT = 6
"""Tasks that count as late ones."""


async def send_event_to(store: Store, task_id: str) -> None:
    """Send a task the event that it waits for."""
    await send_event(store, event_name(task_id), event_value(task_id), key=task_id)


class GaveUpError(Exception):
    """The client stopped asking without an answer."""


@dataclass(eq=False)
class SimulatedClient:
    """One client process."""

    store: Store
    """The store of this process."""
    setup: SimulationSetup
    event_log: EventLog
    """Records the responses to all clients."""
    rng: random.Random
    """Source of all random choices."""
    tasks: TaskFactory
    """Makes the tasks to enqueue; shared by all clients."""
    pause_seconds: float
    """Mean time between two actions."""
    is_done: bool = False
    """Whether it has nothing more to ask for; it may still wait for results."""

    def __post_init__(self) -> None:
        self._watch = TaskWatcher(self.store)
        self._waits: dict[str, asyncio.Task[None]] = {}

    async def run(self, until: float) -> None:
        """Do one action after another until a virtual time."""
        while self.event_log.now() < until:
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_seconds))
            actions = self._actions()
            action = self.rng.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
            try:
                await action()
            except GaveUpError:
                self.event_log.injected["client gave up"] += 1
        self.is_done = True

    async def opened_store(self) -> Store:
        """Return the store, for handles."""
        return self.store

    def task_watcher(self, store: Store) -> TaskWatcher:
        """Return the watcher of tasks, for handles."""
        return self._watch

    def _actions(self) -> Sequence[tuple[Action, int]]:
        """Return what it may do, and how often."""
        return (
            (lambda: self._enqueue(self.tasks.take(1)), 8),
            (lambda: self._enqueue(self.tasks.take(self.rng.randint(2, 5))), 3),
            (self._enqueue_in_parts, 2),
            (self._cancel, 3),
            (self._enqueue_and_cancel, 3),
            (self._redrive, 2),
            (self._reprioritise, 1),
            (self._run_now, 2),
            (self._purge, 1),
            (self._wait, 3),
            (self._enqueue_map, 2),
            (self._enqueue_after, 3),
            (self._send_event, 3),
        )

    # --- enqueue ---

    async def _enqueue(self, tasks: list[NewTask]) -> None:
        if not tasks:
            return
        self.event_log.record_sent(tasks)
        try:
            answers = await self._call_until_answered(partial(self.store.enqueue, tasks))
        except KeyConflictError:
            self.event_log.record_refused(tasks)
            return
        self.event_log.record_accepted(tasks, [answer.task_id for answer in answers])

    async def _enqueue_in_parts(self) -> None:
        """Enqueue a small batch in parts, as `enqueue_many` does with more tasks than one part holds."""
        tasks, batch_id = self.tasks.take(self.rng.randint(3, 7)), self.tasks.make_id()
        middle = len(tasks) // 2
        self.event_log.record_sent(tasks)
        try:
            await self._call_until_answered(partial(self.store.enqueue_part, batch_id, tasks[:middle]))
            await self._call_until_answered(partial(self.store.enqueue_part, batch_id, tasks[middle:]))
        except GaveUpError:
            await self._call_until_answered(partial(self.store.drop_batch, batch_id))
            self.event_log.record_refused(tasks)
            return
        try:
            claimed = await self._call_until_answered(partial(self.store.commit_batch, batch_id))
        except (KeyConflictError, WrongStateError):
            self.event_log.record_refused(tasks)
            return
        self.event_log.record_accepted(tasks, [claimed.get(task.id, task.id) for task in tasks])
        if self.rng.random() < 0.5:
            await self._call_until_answered(partial(self.store.release_batches, 2))

    async def _enqueue_map(self) -> None:
        """Enqueue a map in two parts, as `map` does with more items than one part holds."""
        tasks, map_id, batch_id = self.tasks.take_items(self.rng.randint(2, 6)), *self._two_ids()
        if not tasks:
            return
        key, digests, middle = f"map {map_id}", tuple(digest_of(task.args) for task in tasks), len(tasks) // 2
        new = NewMap(
            map_id, "", tasks[0].function, len(tasks), key=key,
            max_failures=self.rng.choice((None, None, 0)),
            on_complete=self.rng.choice((None, FinalHook(MAPPED_FUNCTION, "default", Priority.NORMAL))),
        )  # fmt: skip
        self.event_log.sent_maps[key] = SentMap(digests, is_answered=False)
        for part in (tasks[:middle], tasks[middle:]):
            await self._call_until_answered(partial(self.store.enqueue_map_part, map_id, batch_id, part))
        await self._call_until_answered(partial(self.store.commit_map, new, batch_id))
        self.event_log.sent_maps[key] = SentMap(digests, is_answered=True)

    def _two_ids(self) -> tuple[str, str]:
        return self.tasks.make_id(), self.tasks.make_id()

    async def _enqueue_after(self) -> None:
        """Enqueue a task after some that are known to be stored."""
        parents = tuple(dict.fromkeys(self._some_stored(self.rng.randint(1, 2))))
        if not parents:
            return
        policy = self.rng.choice(("wait", "cancel", "run"))
        tasks = [
            replace(task, after=parents, on_parent_failure=policy, delay_seconds=0.0)
            for task in self.tasks.take_items(1)
        ]
        try:
            await self._enqueue(tasks)
        except TaskNotFoundError:  # a parent was purged
            self.event_log.record_refused(tasks)

    async def _send_event(self) -> None:
        """Send an event that some task waits for, or will."""
        waiting = [task_id for task_id in self.event_log.accepted_ids() if task_id in self.event_log.events]
        if waiting:
            latest = self.rng.choice(waiting[-2:])  # it may not have begun to wait yet
            await self._call_until_answered(partial(send_event_to, self.store, latest))

    # --- actions by id ---

    async def _cancel(self) -> None:
        """Cancel a task, half of the time one that runs or will run again, now and then by force."""
        ids = self._some_stored() if self.rng.random() < 0.5 else await self._one_under_way()
        for task_id in ids:
            await self._cancel_one(task_id)

    async def _enqueue_and_cancel(self) -> None:
        """Enqueue one and think better of it while it may just run, fail or wait."""
        for task in self.tasks.take(1):
            await self._enqueue([task])
            await asyncio.sleep(self.rng.uniform(0.0, self.setup.lease / 2))
            await self._cancel_one(task.id)

    async def _cancel_one(self, task_id: str) -> None:
        self.event_log.cancelling.add(task_id)
        cancel = partial(self.store.cancel, [task_id], why="at random", force=self.rng.random() < 0.2)
        self.event_log.record_cancel(task_id, (await self._call_until_answered(cancel))[task_id])

    async def _one_under_way(self) -> list[str]:
        under_way = TaskFilter(states=(State.RUNNING, State.RETRYING))
        rows = await self._call_until_answered(partial(self.store.list_tasks, under_way, limit=5))
        return [self.rng.choice(rows).id] if rows else []

    async def _redrive(self) -> None:
        if ids := self._some_stored(5):
            await self._call_until_answered(partial(self.store.redrive, ids))

    async def _reprioritise(self) -> None:
        if ids := self._some_stored(2):
            await self._call_until_answered(
                partial(self.store.reprioritise, ids, self.rng.choice(list(Priority)))
            )

    async def _run_now(self) -> None:
        if ids := self._some_stored(4):
            await self._call_until_answered(partial(self.store.run_now, ids))

    async def _purge(self) -> None:
        for task_id in self._some_stored():
            self.event_log.purges[task_id] += 1
            answers = await self._call_until_answered(partial(self.store.purge, [task_id]))
            if answers[task_id] is ActionStatus.REFUSED:
                self.event_log.purges[task_id] -= 1

    def _some_stored(self, number: int = 1) -> list[str]:
        """Return some tasks that are known to be stored, more often late ones: those are not final yet."""
        known = self.event_log.accepted_ids()
        if self.rng.random() < 0.6:
            known = known[-_RECENT:]
        return self.rng.sample(known, min(number, len(known)))

    # --- results ---

    async def _wait(self) -> None:
        """Start to wait for a result, without a limit."""
        for task_id in self._some_stored():
            if task_id not in self._waits:
                work = self._wait_for(task_id)
                self._waits[task_id] = asyncio.create_task(work, name=f"wait for {task_id}")

    async def _wait_for(self, task_id: str) -> None:
        handle: Handle[Any] = Handle(task_id, self, digest_of)
        while True:
            try:
                digest = await handle.result()
            except StoreError:
                await asyncio.sleep(self.rng.uniform(0.05, self.setup.lease / 4))
                continue
            except TaskNotFoundError:
                return
            except TaskCancelledError:
                self.event_log.record_final(task_id, State.CANCELLED, "")
                return
            except TaskFailedError:
                return  # dead, but a redrive may change that
            self.event_log.record_final(task_id, State.SUCCEEDED, digest)
            return

    @property
    def waiting(self) -> list[str]:
        """Tasks whose results clients still wait for."""
        return [task_id for task_id, wait in self._waits.items() if not wait.done()]

    # --- asking ---

    async def _call_until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the response; resend without one, and give up after some tries.

        Raises:
            GaveUpError: No response came, so the request may be done or not.
        """
        for _ in range(self.rng.choice((1, 3, 6, 12))):
            try:
                return await call()
            except StoreError:
                await asyncio.sleep(self.rng.uniform(0.05, self.setup.lease / 4))
        raise GaveUpError
