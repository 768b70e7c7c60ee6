"""A client process: enqueues in every way there is, cancels, waits for results, until SIGTERM.

It records each request before it is sent, and each response. If it is killed in between, the next process of
the same name sends the same again: same ids, same keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import tidegate.application.bulk_enqueue
from chaos import functions
from chaos.plan import BATCHED_FROM, LONGEST_BODY_LEASES, LONGEST_DELAY_LEASES
from chaos.process_logs import (
    CancelAnswered,
    CancelSent,
    ClientError,
    EnqueueAnswered,
    EnqueueSent,
    MapAnswered,
    MapSent,
    ProcessLog,
    read_clients,
)
from checker import digest_of
from harness.record import FinalSeen
from harness.relations import event_name, event_value
from tidegate import State, StoreError, TaskCancelledError, TaskFailedError, Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import NewTask

T = TypeVar("T")

_MEAN_TASKS = 3.0
"""Of one enqueue."""
_AFTER_SHARE = 0.07
"""Of the tasks that wait for others."""
_SEND_SHARE = 0.05
"""Chance that a task is sent its event at one action."""
_MOST_WAITS = 20
ANSWER_SECONDS = 40.0
"""For a request to be answered: an outage, a freeze, and a machine with better things to do."""


def client_log_path(directory: Path, name: str) -> Path:
    """Return where the clients of one name write."""
    return directory / f"{name}.ndjson"


class NoAnswerError(Exception):
    """The store did not answer a request in time."""


class ChaosClient:
    """One client process.

    Args:
        app: The application under chaos.
        path: Its record of requests; continued if it exists.
        rng: Source of all random choices.
        lease: The lease of the workers; functions are short or long compared with it.
    """

    def __init__(self, app: Tidegate, path: Path, *, rng: random.Random, lease: float) -> None:
        self._app = app
        self._path = path
        self._log = ProcessLog(path)
        self._rng = rng
        self._lease = lease
        self._recent: list[str] = []
        self._listening: list[str] = []
        """Tasks that wait for an event which was not sent yet."""
        self._waits: set[asyncio.Task[None]] = set()

    async def run(self, tasks_per_second: float, stopping: asyncio.Event) -> None:
        """Resend requests without a response, then do one action after another until asked to stop."""
        logged = read_clients([self._path])
        for sent in logged.unanswered:
            await self.submit(sent.tasks, many=sent.many, call=sent.call)
        for sent_map in logged.unanswered_maps:
            await self._map(sent_map)
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rng.expovariate(tasks_per_second / _MEAN_TASKS)):
                    await stopping.wait()
            await self._inject_one()
        for wait in self._waits:
            wait.cancel()
        await asyncio.gather(*self._waits, return_exceptions=True)

    async def submit(
        self, tasks: Sequence[NewTask], *, many: bool, call: str | None = None
    ) -> tuple[str, ...]:
        """Enqueue until answered, and return the ids.

        Args:
            tasks: One, unless `many`.
            many: Through `enqueue_many`, in batches from `BATCHED_FROM` tasks on.
            call: Name of a call that was sent before by another process.
        """
        sent = EnqueueSent(call or core_of(self._app).next_id(), tuple(tasks), many)
        self._log.write(sent)
        ids = await self._until_answered(lambda: self._enqueue(sent))
        self._log.write(EnqueueAnswered(sent.call, ids))
        return ids

    async def _enqueue(self, sent: EnqueueSent) -> tuple[str, ...]:
        if sent.many:
            return tuple(answer.task_id for answer in await core_of(self._app).enqueue_all(list(sent.tasks)))
        return ((await core_of(self._app).enqueue_prepared(sent.tasks[0])).task_id,)

    async def _inject_one(self) -> None:
        dice = self._rng.random()
        if dice < 0.03:
            await self._map(self._new_map())
        elif dice < 0.85:
            self._remember(await self.submit([self._task(may_wait=True)], many=False))
        else:
            number = self._rng.choice((2, 5, 10, 20, 2 * BATCHED_FROM))
            self._remember(await self.submit([self._task() for _ in range(number)], many=True))
        if self._rng.random() < 0.06 and self._recent:
            await self.cancel(self._rng.choice(self._recent))
        for task_id in [task_id for task_id in self._listening if self._rng.random() < _SEND_SHARE]:
            self._listening.remove(task_id)
            await self.send_event(task_id)
        if self._rng.random() < 0.1 and self._recent and len(self._waits) < _MOST_WAITS:
            wait = asyncio.create_task(self._wait(self._rng.choice(self._recent)))
            self._waits.add(wait)
            wait.add_done_callback(self._waits.discard)

    def _remember(self, ids: Sequence[str]) -> None:
        self._recent = [*self._recent, *ids][-40:]

    # --- actions by id ---------------------------------------------------------------------------------

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, until that is answered."""
        self._log.write(CancelSent(task_id))
        answer = await self._until_answered(lambda: self._app.cancel(task_id, why="at random"))
        self._log.write(CancelAnswered(task_id, answer, time.time()))

    async def send_event(self, task_id: str) -> None:
        """Send a task the event that it waits for, until that is answered."""
        send = functools.partial(self._app.send_event, event_name(task_id), event_value(task_id), key=task_id)
        await self._until_answered(send)

    async def _map(self, sent: MapSent) -> None:
        """Enqueue a map until that is answered. Its key makes it safe to repeat."""
        self._log.write(sent)
        items = [functions.steady.prepare(number, script) for number, script in sent.items]
        settings: dict[str, Any] = {"key": sent.key, "max_failures": sent.max_failures}
        await self._until_answered(
            lambda: functions.steady.map(items, on_complete=functions.mapped, **settings)
        )
        self._log.write(MapAnswered(sent.key))

    async def _wait(self, task_id: str) -> None:
        handle = self._app.handle(task_id)
        try:
            result: Any = await self._until_answered(handle.result, within=inf)
        except TaskCancelledError:  # before its parent
            self._log.write(FinalSeen(task_id, State.CANCELLED))
        except TaskFailedError:
            self._log.write(FinalSeen(task_id, State.DEAD))
        else:
            self._log.write(FinalSeen(task_id, State.SUCCEEDED, result[1]))

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], within: float = ANSWER_SECONDS) -> T:
        """Ask again after each error of the store.

        Raises:
            NoAnswerError: No answer came in time, although every outage is shorter.
        """
        loop, last = asyncio.get_running_loop(), "it did not return"
        ends_at = loop.time() + within
        while loop.time() < ends_at:
            try:
                async with asyncio.timeout_at(ends_at):
                    return await ask()
            except StoreError as error:
                last = repr(error)
                await asyncio.sleep(self._rng.uniform(0.05, self._lease / 4))
            except TimeoutError:
                break
        raise NoAnswerError(f"no answer within {within:g} s: {last}")

    # --- what is enqueued ------------------------------------------------------------------------------

    def _new_map(self) -> MapSent:
        rng = self._rng
        lines = (["ok 0.1"], ["transient 0.05", "ok 0.1"], ["permanent"])
        count = rng.choice((1, 4, 12, 2 * BATCHED_FROM))
        items = [(number, rng.choices(lines, (8, 2, 1))[0]) for number in range(count)]
        digests = [digest_of(functions.steady.prepare(*item).new_task.args) for item in items]
        key = f"map {core_of(self._app).next_id()}"
        return MapSent(key, tuple(items), tuple(digests), rng.choice((None, None, 1)))

    def _task(self, *, may_wait: bool = False) -> NewTask:
        rng = self._rng
        options: dict[str, Any] = {}
        if may_wait and self._recent and rng.random() < _AFTER_SHARE:
            options["after"] = [*dict.fromkeys(rng.choices(self._recent, k=rng.randint(1, 3)))]
            options["on_failure"] = rng.choice(("wait", "cancel", "run"))
            after = functions.steady.using(**options)
            return after.prepare(rng.randrange(1_000_000), ["ok 0.1"]).new_task
        if rng.random() < 0.15:
            options["delay"] = rng.uniform(0.0, LONGEST_DELAY_LEASES * self._lease)
        if rng.random() < 0.2:
            options["priority"] = rng.choice(("interactive", "normal", "bulk"))
        dice = rng.random()
        if dice < 0.12:  # other processes and later ones use the same keys, with the same arguments
            number = 10 * (int(time.time()) // 3) + rng.randrange(3)
            keyed = functions.steady.using(key=f"key {number}", **options)
            return keyed.prepare(number, ["ok 0.1"]).new_task
        if dice < 0.2:
            unique = functions.steady.using(unique="until_final", **options)
            return unique.prepare(rng.randrange(6), ["ok 0.5"]).new_task
        name = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if name in _SCRIPTS:
            script, more = _SCRIPTS[name]
            function = functions.steady.using(**options, **more)
            task = function.prepare(rng.randrange(1_000_000), list(script)).new_task
            if "event" in script:
                self._listening.append(task.id)
            return task
        if name in _STEPPING:
            function = getattr(functions, name).using(**options)
            stepping: NewTask = function.prepare(rng.randrange(1_000_000), rng.randint(1, 12)).new_task
            return stepping
        seconds = self._choose_seconds(name)
        argument: Any = [f"ok {seconds:.3f}"] if name in {"steady", "once"} else seconds
        timed: NewTask = (
            getattr(functions, name).using(**options).prepare(rng.randrange(1_000_000), argument).new_task
        )
        return timed

    def _choose_seconds(self, name: str) -> float:
        """Return how long a function works: sometimes longer than the lease."""
        if name in {"hog", "threaded"} or self._rng.random() >= 0.2:
            return self._rng.uniform(0.0, 0.3)
        longest = LONGEST_BODY_LEASES if name in {"steady", "once"} else 2.5
        return self._lease * self._rng.uniform(1.2, longest)


_WEIGHTS = {
    "steady": 42, "recorded": 7, "recorded_asking": 3, "honoured": 6, "honoured_steps": 5, "pictures": 6, "asking": 2, "prints": 4, "hog": 3, "work": 8, "deaf": 3, "draft": 4, "threaded": 2, "once": 4,
    "flaky": 3, "very flaky": 3, "again": 2, "again uncharged": 3, "hopeless": 2, "forbidden": 1, "overrun": 1,
    "family": 3, "listener": 3,
}  # fmt: skip
_STEPPING = frozenset(
    {"pictures", "asking", "prints", "recorded", "recorded_asking", "honoured", "honoured_steps"}
)
"""Functions that take the number of their steps or calls."""
_SCRIPTS: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "flaky": (["transient 0.05", "ok"], {}),
    "very flaky": (["transient 0.05", "transient 0.05", "ok"], {}),
    "again": (["again 0.1", "ok"], {}),
    "again uncharged": (["free 0.1", "free 0.1", "ok"], {}),
    "hopeless": (["unknown 0.05"], {"max_attempts": 2}),
    "forbidden": (["permanent"], {}),
    "family": (["gather 3"], {}),
    "listener": (["event"], {}),
    "overrun": (["overrun"], {"max_attempts": 2, "timeout": functions.plan.lease / 2}),
}
"""Scripts of tasks that do not simply work, with their options."""


async def _main(name: str, seed: str, tasks_per_second: float) -> None:
    tidegate.application.bulk_enqueue.PART_TASKS = (
        BATCHED_FROM  # so that an enqueue in batches needs no 5,000 tasks
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    path = client_log_path(functions.directory, name)
    client = ChaosClient(functions.app, path, rng=random.Random(seed), lease=functions.plan.lease)
    try:
        await client.run(tasks_per_second, stopping)
    except Exception as error:
        ProcessLog(path).write(ClientError(f"{name}: {type(error).__name__}: {error}"))
        raise
    finally:
        await functions.app.aclose()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
