"""One life of a test's worker: the real engine on the running loop, from the start of a drain to its end.

Time jumps whenever every function waits for a timer. While a function runs in a thread or waits for a
socket, time passes as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from tidegate._version import __version__
from tidegate.steps.threads import are_threads_awaited
from tidegate.store.worker_rows import NewWorker
from tidegate.testing.kit.application import KitApplication
from tidegate.testing.kit.clock import KitClock
from tidegate.testing.kit.loop_time import LoopTime, context_of, is_routine, is_sleep
from tidegate.testing.kit.results import NeverEndedError
from tidegate.testing.kit.sleeping import virtual_sleep
from tidegate.testing.kit.store import KitStore
from tidegate.threads.bridge import substitute_loop
from tidegate.worker import scratch
from tidegate.worker.application import Application
from tidegate.worker.engine.engine import Engine
from tidegate.worker.maintenance.loop import RETENTION_SECONDS, MaintenanceLoop
from tidegate.worker.settings import Pool, Timings

LEASE_SECONDS = 100 * 365 * 86_400.0
"""The length of a test's own lease, so long that none runs out."""
REAL_WAIT_SECONDS = 0.05
"""Longest time that an idle loop waits before it checks the drain's limit again. An event ends the wait."""

_UNKNOWN_THREADS = "AnyIO worker thread"
"""Names of threads that end waits of a loop without its knowledge."""

_is_engine: ContextVar[bool] = ContextVar("tidegate_kit_engine", default=False)
"""Set for the engine's own jobs, and not for the functions that it runs."""


class ShareConnections:
    """Shares what belongs to the test's thread with the threads of functions. This one shares nothing."""

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Share inside the block."""
        yield


class WorkSession:
    """Runs what is due, on the running loop.

    Args:
        app: The application.
        store: The test's store.
        pool: The queues to serve, and how many tasks run at once.
        rng: For jitter.
        limit_seconds: Real seconds after which it gives up.
        sharing: What to share with the threads of functions.
    """

    def __init__(
        self,
        app: Application,
        store: KitStore,
        *,
        pool: Pool,
        rng: random.Random,
        limit_seconds: float,
        sharing: ShareConnections,
    ) -> None:
        self.app = KitApplication(app, store, self._around)
        self.loop = asyncio.get_running_loop()
        self.is_open = False
        """Whether the worker's loop serves the sync calls of functions."""
        self._store = store
        self._clock: KitClock = store.clock
        self._pool = pool
        self._timings: Timings = app.timings
        self._limit_seconds = limit_seconds
        self._sharing = sharing
        self._rng = rng
        retention = replace(app.retention, archive=None)  # tests leave no files
        self._maintenance = MaintenanceLoop(
            store, self._timings, retention, rng=self._rng, clock=self._clock.monotonic
        )
        self._time = LoopTime(self.loop, self._clock, on_idle=self._on_idle, on_turn=self._on_turn)
        self._engine: Engine | None = None
        self._idle = asyncio.Event()
        self._waiting_threads = 0
        self._lock = threading.Lock()
        self._ends_at = 0.0
        self._is_giving_up = False
        self._is_abandoned = False
        """Whether a task blocks the loop, so that the test, and with it the store, ends first."""
        self._ticks_until = -math.inf
        """Schedules tick until this moment: only while the clock is moved on."""

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Start the engine for the block, and stop it at its end."""
        worker_id = str(uuid.uuid4())
        await self._register(worker_id)
        self._ends_at = time.monotonic() + self._limit_seconds
        with self._time, virtual_sleep():
            self.is_open = True
            was = _is_engine.set(True)
            try:
                self._engine = engine = Engine(
                    app=self.app,
                    pool=self._pool,
                    worker_id=worker_id,
                    timings=self._timings,
                    scratch_root=scratch.scratch_root(worker_id),
                    rng=self._rng,
                    wall_clock=self._clock,
                )
                await engine.start()
            finally:
                _is_engine.reset(was)
            try:
                yield
            finally:
                self.is_open = False
                await engine.stop(0.0)
                scratch.remove(worker_id)
                if not self._is_abandoned:
                    await self._store.retire_worker(
                        worker_id, why="stopped", is_loss=False, only_if_expired=False
                    )

    async def run_due(self) -> None:
        """Run what is due now, and what becomes due while it runs.

        Raises:
            NeverEndedError: The drain took longer than the limit.
        """
        while True:
            while await self._maintenance.promote():
                pass
            await self._fire_schedules()
            await self._maintenance.follow_ends()
            self._idle.clear()
            await self._idle.wait()
            if self._is_giving_up:
                raise self._never_ended()
            if self._store.failure is not None:
                raise self._store.failure
            is_over = self._is_quiet() and self._next_due_at() > self._clock()
            if is_over and not await self._maintenance.follow_ends() and not await self._fire_schedules():
                return

    async def advance_to(self, moment: float) -> None:
        """Go from due moment to due moment until this one, and run what is due at each. Schedules tick.

        Raises:
            NeverEndedError: The drain took longer than the limit.
        """
        await self.run_due()
        self._ticks_until = moment
        cleaned_at = -math.inf
        while True:
            clean_at = max(self.next_expiry_at(), cleaned_at + RETENTION_SECONDS)
            next_at = min(self._next_due_at(), clean_at, moment)
            self._time.jump_to(next_at)
            if next_at == clean_at:
                cleaned_at = clean_at
                while await self._maintenance.delete_expired():
                    pass
            await self.run_due()
            if next_at == moment:
                return

    async def _fire_schedules(self) -> int:
        """Fire due ticks, and those that wait for a task which has ended; return how many tasks."""
        if self._ticks_until == -math.inf:
            return 0
        return await self._maintenance.schedules.fire_due(until=self._ticks_until)

    def _next_due_at(self) -> float:
        """Return the moment at which a waiting task is due or a schedule ticks; infinity if there is none."""
        tick_at = self._store.next_tick_at()
        return min(self._store.next_due_at(), tick_at if tick_at <= self._ticks_until else math.inf)

    def next_expiry_at(self) -> float:
        """Return the moment at which the first row of the store expires."""
        return self._store.next_expiry_at(self.app.retention)

    async def _register(self, worker_id: str) -> None:
        await self._store.add_worker(
            NewWorker(
                id=worker_id,
                name="test",
                pool=self._pool.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=self._pool.queues,
                slots=self._pool.slots,
                lease_seconds=LEASE_SECONDS,
                version=__version__,
            )
        )

    # --- time --------------------------------------------------------------------------------------------

    def _is_quiet(self) -> bool:
        engine = self._engine
        return engine is None or (not engine.executor.running and engine.finisher.pending == 0)

    def _on_turn(self) -> None:
        if time.monotonic() > self._ends_at and not self._is_giving_up:
            self._is_giving_up = True
            self._idle.set()

    def _on_idle(self) -> float | None:
        """Let time pass, because nothing in the loop can run now."""
        if self._is_quiet():
            if self._idle.is_set():  # a hook of the application waits for something
                return REAL_WAIT_SECONDS
            self._idle.set()
            return None
        if not self._is_giving_up and self._waits_for_threads():
            return REAL_WAIT_SECONDS
        if self._time.has_events():  # a thread called the loop since it was found idle, and waits now
            return None
        timers = self._time.timers()
        own = [timer for timer in timers if not context_of(timer).get(_is_engine, False)]
        relevant = own + [
            timer
            for timer in timers
            if context_of(timer).get(_is_engine, False)
            and (self._store.has_cancel_request or self._is_giving_up or not is_routine(timer))
        ]
        if not relevant or not (
            self._is_giving_up or any(map(is_sleep, own)) or not self._may_wait_for_others()
        ):
            return REAL_WAIT_SECONDS
        self._jump(min(map(self._time.seconds_until, relevant)))
        return None

    def _jump(self, seconds: float) -> None:
        due_in = math.inf if self._is_giving_up else self._next_due_at() - self._clock()
        if due_in <= seconds and not self._idle.is_set():
            self._time.jump(due_in)
            self._idle.set()  # `run_due` makes it ready
        else:
            self._time.jump(seconds)

    def _may_wait_for_others(self) -> bool:
        """Whether a function may wait for a socket, or for a thread that the loop does not know."""
        return self._time.watches_files or any(
            thread.name.startswith(_UNKNOWN_THREADS) for thread in threading.enumerate()
        )

    def _waits_for_threads(self) -> bool:
        """Whether a thread of a function is busy, so that time must pass as usual."""
        engine = self._engine
        threads = (
            0
            if engine is None
            else sum(
                run.thread is not None and not run.thread.done() for run in engine.executor.running.values()
            )
        )
        with self._lock:
            return threads > self._waiting_threads or self._time.waits_for_threads or are_threads_awaited()

    def caller_waits(self, waiting: Future[Any]) -> None:
        """Note that a function's thread does nothing until this future is done."""
        with self._lock:
            self._waiting_threads += 1
        waiting.add_done_callback(self._caller_goes_on)

    def _caller_goes_on(self, _: Future[Any]) -> None:
        with self._lock:
            self._waiting_threads -= 1

    @contextlib.contextmanager
    def _around(self, *, is_in_thread: bool) -> Iterator[None]:
        if not is_in_thread:
            yield
            return
        substitute_loop.set(self)
        with self._sharing.shared():
            yield

    def give_up(self) -> None:
        """End as soon as the loop runs again, which a task blocks now. May be called from any thread."""
        self._is_giving_up = self._is_abandoned = True
        self._store.runner.abandon()

    def running(self) -> list[str]:
        """Return a line for each run that has not ended."""
        engine = self._engine
        claimed = [] if engine is None else [run.claimed for run in engine.executor.running.values()]
        return [f"{task.function} {task.fence.task_id} run {task.fence.run}" for task in claimed]

    def _never_ended(self) -> NeverEndedError:
        within = f"within {self._limit_seconds:g} s of real time"
        if running := self.running():
            return NeverEndedError(
                f"expected the due tasks to end {within}, and these still run:",
                running,
                "give the task a way to end in a test, or more time: limit=60",
            )
        latest = [self._store.claimed[outcome.fence] for outcome in self._store.outcomes[-3:]]
        return NeverEndedError(
            f"expected no due task to be left {within}, but some are left after "
            f"{len(self._store.outcomes)} runs. The latest were:",
            [f"{task.function} {task.fence.task_id} run {task.fence.run}" for task in latest],
            "a task enqueues or repeats itself without a wait; or give more time: limit=60",
        )
