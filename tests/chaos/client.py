"""A client process: enqueues in every way there is, cancels, waits for results, until SIGTERM.

It records each request before it is sent, and each response. If it is killed in between, the next process of
the same name sends the same again: same ids, same keys.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    ProcessLog,
    read_clients,
)
from harness.record import FinalSeen
from tidegate import State, StoreError, TaskCancelledError, TaskFailedError, Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import NewTask

T = TypeVar("T")

_MEAN_TASKS = 3.0
"""Of one enqueue."""
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
        self._waits: set[asyncio.Task[None]] = set()

    async def run(self, tasks_per_second: float, stopping: asyncio.Event) -> None:
        """Resend requests without a response, then do one action after another until asked to stop."""
        for sent in read_clients([self._path]).unanswered:
            await self.submit(sent.tasks, many=sent.many, call=sent.call)
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
        if dice < 0.85:
            self._remember(await self.submit([self._task()], many=False))
        else:
            number = self._rng.choice((2, 5, 10, 20, 2 * BATCHED_FROM))
            self._remember(await self.submit([self._task() for _ in range(number)], many=True))
        if self._rng.random() < 0.06:
            await self._cancel(self._rng.choice(self._recent))
        if self._rng.random() < 0.1 and len(self._waits) < _MOST_WAITS:
            wait = asyncio.create_task(self._wait(self._rng.choice(self._recent)))
            self._waits.add(wait)
            wait.add_done_callback(self._waits.discard)

    def _remember(self, ids: Sequence[str]) -> None:
        self._recent = [*self._recent, *ids][-40:]

    # --- actions by id ---------------------------------------------------------------------------------

    async def _cancel(self, task_id: str) -> None:
        self._log.write(CancelSent(task_id))
        answer = await self._until_answered(lambda: self._app.cancel(task_id, why="at random"))
        self._log.write(CancelAnswered(task_id, answer, time.time()))

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

    def _task(self) -> NewTask:
        rng = self._rng
        options: dict[str, Any] = {}
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
            return function.prepare(rng.randrange(1_000_000), list(script)).new_task
        if name in _STEPPING:
            function = getattr(functions, name).using(**options)
            stepping: NewTask = function.prepare(rng.randrange(1_000_000), rng.randint(1, 12)).new_task
            return stepping
        seconds = self._choose_seconds(name)
        argument: Any = [f"ok {seconds:.3f}"] if name in {"steady", "once"} else seconds
        task: NewTask = (
            getattr(functions, name).using(**options).prepare(rng.randrange(1_000_000), argument).new_task
        )
        return task

    def _choose_seconds(self, name: str) -> float:
        """Return how long a function works: sometimes longer than the lease."""
        if name in {"hog", "threaded"} or self._rng.random() >= 0.2:
            return self._rng.uniform(0.0, 0.3)
        longest = LONGEST_BODY_LEASES if name in {"steady", "once"} else 2.5
        return self._lease * self._rng.uniform(1.2, longest)


_WEIGHTS = {
    "steady": 56, "pictures": 6, "asking": 2, "prints": 4, "hog": 3, "work": 8, "deaf": 3, "draft": 4, "threaded": 2, "once": 4,
    "flaky": 3, "very flaky": 3, "again": 2, "again uncharged": 3, "hopeless": 2, "forbidden": 1, "overrun": 1,
}  # fmt: skip
_STEPPING = frozenset({"pictures", "asking", "prints"})
_SCRIPTS: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "flaky": (["transient 0.05", "ok"], {}),
    "very flaky": (["transient 0.05", "transient 0.05", "ok"], {}),
    "again": (["again 0.1", "ok"], {}),
    "again uncharged": (["free 0.1", "free 0.1", "ok"], {}),
    "hopeless": (["unknown 0.05"], {"max_attempts": 2}),
    "forbidden": (["permanent"], {}),
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
