"""A worker inside another program: a web process, a test, a notebook.

Heartbeat and maintenance run in a thread with its own event loop, so user code that blocks the main loop does
not lose the lease. The worker cannot kill a function that does not stop, and it ends when its process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from tidegate._version import __version__
from tidegate.alerts.settings import AlertSettings
from tidegate.errors import StoreError
from tidegate.schedule.declared import DECLARE_SECONDS, ScheduleDeclarer
from tidegate.store.worker_rows import EMBEDDED_WORKER_NAME, NewWorker
from tidegate.worker import report, scratch
from tidegate.worker.application import Application
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.current_task import NO_CULPRIT
from tidegate.worker.engine.engine import Engine
from tidegate.worker.engine.heartbeat import Heartbeat
from tidegate.worker.engine.other_code import code_version
from tidegate.worker.logs import add_task_fields
from tidegate.worker.maintenance.job import MaintenanceJob
from tidegate.worker.maintenance.loop import MaintenanceLoop
from tidegate.worker.settings import Pool, Timings

SLOT_REPORT_SECONDS = 5.0
"""Time between two checks for slots that have grown or shrunk."""


class EmbeddedWorker:
    """Runs tasks inside an `async with` block.

    Args:
        app: The application.
        pools: The pools to serve, all in this process; their `processes` are ignored.
        timings: Intervals and grace times.
        rng: For jitter.
        threaded: False runs heartbeat and maintenance in the same loop, which simulated time needs.
        may_restart: Whether it continues as a new worker after its lease is lost.
        alerts: The settings of alerts; None to evaluate none.
    """

    def __init__(
        self,
        app: Application,
        pools: Sequence[Pool],
        timings: Timings,
        *,
        rng: random.Random | None = None,
        threaded: bool = True,
        may_restart: bool = False,
        alerts: AlertSettings | None = None,
    ) -> None:
        self._rng = rng or random.Random()
        self._new_incarnation: Callable[[], _Incarnation] = functools.partial(
            _Incarnation, app, tuple(pools), timings, self._rng, threaded=threaded, alerts=alerts
        )
        self._may_restart = may_restart
        self._incarnation = self._new_incarnation()
        self._has_started = False
        self._restart_task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The id of the first pool's worker; it changes after a lost lease."""
        return self._incarnation.ids[0]

    @property
    def ids(self) -> tuple[str, ...]:
        """The worker ids in the store: one for each pool, in the order of the pools."""
        return self._incarnation.ids

    async def __aenter__(self) -> Self:
        """Register, start the heartbeat and start to claim. The block may be entered again after it ended."""
        if self._has_started:
            self._incarnation = self._new_incarnation()
        self._has_started = True
        await self._incarnation.start()
        if self._may_restart:
            self._restart_task = asyncio.create_task(self._restart_when_lost(), name="tidegate restart")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain: running tasks end or are released; then the worker is retired.

        After an error in the block, running tasks are released at once.
        """
        await self.stop(grace=0.0 if kind is not None else None)

    async def stop(self, grace: float | None = None) -> None:
        """Stop, and let running tasks go on for at most `grace` seconds. Safe to call twice.

        If this call is cancelled, running tasks are released at once before the cancellation is raised.
        """
        restart_task, self._restart_task = self._restart_task, None
        if restart_task is not None:
            restart_task.cancel()
            await asyncio.gather(restart_task, return_exceptions=True)
        stopping = asyncio.create_task(self._incarnation.stop(grace), name="tidegate stop")
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            self._incarnation.release_now()
            await stopping
            raise

    async def _restart_when_lost(self) -> None:
        """Start a new incarnation each time the current one loses its lease."""
        pause = BackoffDelay(self._rng, first=1.0, cap=30.0)
        while True:
            await self._incarnation.wait_until_lost()
            await self._incarnation.stop(0.0)
            try:
                self._incarnation = self._new_incarnation()
                await self._incarnation.start()
                pause.reset()
            except Exception as error:  # a start hook may raise anything
                wait = pause.next()
                report.will_retry("restarting after a lost lease", error, wait)
                await asyncio.sleep(wait)


class _Incarnation:
    """One life of an embedded worker: a row and an engine for each pool. Started once, stopped once."""

    def __init__(
        self,
        app: Application,
        pools: Sequence[Pool],
        timings: Timings,
        rng: random.Random,
        *,
        threaded: bool,
        alerts: AlertSettings | None,
    ) -> None:
        self._app = app
        self._pools = {str(uuid.UUID(int=rng.getrandbits(128), version=4)): pool for pool in pools}
        self._timings = timings
        self._rng = rng
        self._threaded = threaded
        self._alerts = alerts
        self.ids = tuple(self._pools)
        self._schedule_set = app.schedule_set()
        self._engines: list[Engine] = []
        self._background: _BackgroundLoop | None = None

    async def start(self) -> None:
        """Register, start the heartbeat, start to claim. On a failure, undo what was started."""
        await self._app.store.open()
        declarer = ScheduleDeclarer(self._app.store, self._schedule_set)
        await declarer.run_once()
        try:
            for worker_id, pool in self._pools.items():
                await self._register(worker_id, pool)
        except BaseException:
            await self._retire_rows()
            raise
        engines = {worker_id: self._engine(worker_id, pool) for worker_id, pool in self._pools.items()}
        self._engines = list(engines.values())
        self._background = _BackgroundLoop(
            self._app, engines, self._timings, self._rng, declarer, self._alerts
        )
        try:
            await self._background.start(threaded=self._threaded)
            first, *others = self._engines
            await first.start()
            for engine in others:
                engine.executor.base_context = first.executor.base_context
                await engine.start()
            add_task_fields()
        except BaseException:
            background, self._engines, self._background = self._background, [], None
            await self._retire(background)
            raise

    async def _register(self, worker_id: str, pool: Pool) -> None:
        await self._app.store.add_worker(
            NewWorker(
                id=worker_id,
                name=EMBEDDED_WORKER_NAME,
                pool=pool.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=pool.queues,
                slots=pool.slots,
                lease_seconds=self._timings.lease,
                version=__version__,
                schedule_set=self._schedule_set.fingerprint,
                most_slots=pool.most_slots,
            )
        )
        await self._app.store.set_worker_code(worker_id, code_version(self._app.functions))

    def _engine(self, worker_id: str, pool: Pool) -> Engine:
        return Engine(
            app=self._app,
            pool=pool,
            worker_id=worker_id,
            timings=self._timings,
            scratch_root=scratch.scratch_root(worker_id),
            rng=self._rng,
            runs_hooks=worker_id == self.ids[0],
        )

    async def wait_until_lost(self) -> None:
        """Return once the lease of any pool is lost."""
        losses = [asyncio.create_task(engine.retired.wait()) for engine in self._engines]
        try:
            await asyncio.wait(losses, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for loss in losses:
                loss.cancel()

    async def stop(self, grace: float | None) -> None:
        """Drain all pools, then run the stop hooks and retire."""
        engines, background = self._engines, self._background
        self._background = None
        if not engines or background is None:
            return
        try:
            await asyncio.gather(*(engine.drain(grace) for engine in engines))
            for engine in reversed(engines):  # the first one runs the stop hooks
                await engine.close()
        finally:
            self._engines = []
            await self._retire(background)

    def release_now(self) -> None:
        """Release running tasks now, if a stop is under way."""
        for engine in self._engines:
            engine.release_now()

    async def _retire(self, background: _BackgroundLoop) -> None:
        await background.stop()
        await self._retire_rows()

    async def _retire_rows(self) -> None:
        """Retire all rows; if the store is unreachable, the leases run out instead."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self._timings.stop_grace):
                for worker_id in self.ids:
                    await self._app.store.retire_worker(
                        worker_id, why="stopped", is_loss=False, only_if_expired=False, culprit=NO_CULPRIT
                    )
        for worker_id in self.ids:
            scratch.remove(worker_id)


class _BackgroundLoop:
    """Runs heartbeat and maintenance for the engines of one loop, in its own thread or in their loop."""

    def __init__(
        self,
        app: Application,
        engines: Mapping[str, Engine],
        timings: Timings,
        rng: random.Random,
        declarer: ScheduleDeclarer,
        alerts: AlertSettings | None,
    ) -> None:
        self._app = app
        self._timings = timings
        self._alerts = alerts
        self._engines = engines
        self._rng = rng
        self._engine_loop = asyncio.get_running_loop()
        self._loop = self._engine_loop
        self._thread: threading.Thread | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._maintenance: MaintenanceLoop | None = None
        self._declaration = MaintenanceJob(
            "schedule declaration", DECLARE_SECONDS, declarer.run_once, rng=rng
        )
        self._slots: dict[str, int] = {}
        """The slots of each engine, as this loop has stored them."""
        self._slot_report = MaintenanceJob("slot report", SLOT_REPORT_SECONDS, self._report_slots, rng=rng)
        self._pinged_at: float | None = None
        """When the engines' loop was pinged; None once it has answered."""

    async def start(self, *, threaded: bool) -> None:
        if threaded:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="tidegate-background", daemon=True
            )
            self._thread.start()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._start_jobs(), self._loop))
        else:
            await self._start_jobs()

    async def stop(self) -> None:
        if self._thread is None:
            await self._stop_jobs()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop_jobs(), self._loop))
        # the store's connections of this loop end when it is closed
        closing = self._loop.shutdown_asyncgens()
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _start_jobs(self) -> None:
        clock = time.monotonic if self._thread is not None else self._loop.time
        heartbeat = Heartbeat(
            store=self._app.store,
            timings=self._timings,
            live_worker_ids=self._live_worker_ids,
            on_renewed=lambda worker_id, until: self._call_in_engine_loop(
                self._engines[worker_id].extend_lease, until
            ),
            on_retired=lambda worker_id: self._call_in_engine_loop(self._engines[worker_id].on_lease_lost),
            rng=self._rng,
        )
        self._maintenance = MaintenanceLoop(
            self._app.store,
            self._timings,
            self._app.retention,
            rng=self._rng,
            clock=clock,
            # It removes in a thread, which takes real time: simulated time would differ in each run.
            on_retired=scratch.remove_for_lost_worker if self._thread is not None else None,
            alerts=self._alerts,
            kind="embedded worker",
        )
        self._maintenance.start()
        self._declaration.start()
        self._slot_report.start()
        self._heartbeat_task = asyncio.create_task(heartbeat.run(), name="tidegate heartbeat")

    async def _stop_jobs(self) -> None:
        await self._declaration.stop()
        await self._slot_report.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.gather(self._heartbeat_task, return_exceptions=True)

    async def _report_slots(self) -> bool:
        """Store the slots of engines that have grown or shrunk. Always return False: nothing more is due."""
        for worker_id, engine in self._engines.items():
            if (slots := engine.slots.total) != self._slots.get(worker_id):
                await self._app.store.set_worker_slots(worker_id, slots)
                self._slots[worker_id] = slots
        return False

    def _live_worker_ids(self) -> list[str]:
        """Return our ids, or none if the engines' loop has been blocked for longer than `stall_limit`."""
        if self._thread is None:
            return list(self._engines)
        now = time.monotonic()
        stalled = 0.0 if self._pinged_at is None else now - self._pinged_at
        if self._pinged_at is None:
            self._pinged_at = now
            self._call_in_engine_loop(self._mark_answered)
        return list(self._engines) if stalled <= self._timings.stall_limit else []

    def _mark_answered(self) -> None:
        self._pinged_at = None

    def _call_in_engine_loop(self, callback: object, *args: float) -> None:
        with contextlib.suppress(RuntimeError):  # the engines' loop is closed
            self._engine_loop.call_soon_threadsafe(callback, *args)  # type: ignore[arg-type]
