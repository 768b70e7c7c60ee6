"""A worker inside another program: a web process, a test, a notebook.

It beats and keeps house from a thread with a loop of its own, so user code that blocks the main loop
loses no lease. What it cannot do: kill a body that will not stop, or survive its process.
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
from tidegate.errors import StoreError
from tidegate.store.rows import EMBEDDED, NewWorker
from tidegate.worker import report, scratch
from tidegate.worker.application import Application
from tidegate.worker.engine import Engine
from tidegate.worker.heartbeat import Heartbeat
from tidegate.worker.logs import label_records
from tidegate.worker.pause import Pause
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.spot import NOBODY
from tidegate.worker.steward.steward import Steward


class EmbeddedWorker:
    """Runs tasks between `async with` and its end.

    Args:
        app: Whose tasks.
        pools: What is served, all in this process; their `processes` do not count here.
        timings: Clocks and grace times.
        rng: For jitter.
        threaded: False: beat and keep house in the same loop, as simulated time needs it.
        begins_anew: Whether it goes on as a new worker after its lease was lost.
    """

    def __init__(
        self,
        app: Application,
        pools: Sequence[Pool],
        timings: Timings,
        *,
        rng: random.Random | None = None,
        threaded: bool = True,
        begins_anew: bool = False,
    ) -> None:
        self._rng = rng or random.Random()
        self._make_life: Callable[[], _Life] = functools.partial(
            _Life, app, tuple(pools), timings, self._rng, threaded=threaded
        )
        self._begins_anew = begins_anew
        self._life = self._make_life()
        self._is_used = False
        self._renewing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The id of the first pool's worker; another one after its lease was lost."""
        return self._life.ids[0]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids under which the store knows it: one for each pool, in their order."""
        return self._life.ids

    async def __aenter__(self) -> Self:
        """Register, begin to beat, begin to claim. May be entered again after its end."""
        if self._is_used:
            self._life = self._make_life()
        self._is_used = True
        await self._life.begin()
        if self._begins_anew:
            self._renewing = asyncio.create_task(self._renew(), name="tidegate renewal")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain: running tasks end or are given back; then the worker is retired.

        When an error passes through, running tasks are given back at once.
        """
        await self.stop(grace=0.0 if kind is not None else None)

    async def stop(self, grace: float | None = None) -> None:
        """End now, letting running tasks go on for `grace` seconds at most. Safe to call twice.

        Cancelled meanwhile, it gives running tasks back at once, and passes the cancellation on afterwards.
        """
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        stopping = asyncio.create_task(self._life.end(grace), name="tidegate stop")
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            self._life.shorten()
            await stopping
            raise

    async def _renew(self) -> None:
        """Begin a new life whenever the lease of the present one is lost."""
        pause = Pause(self._rng, first=1.0, cap=30.0)
        while True:
            await self._life.lost()
            await self._life.end(0.0)
            try:
                self._life = self._make_life()
                await self._life.begin()
                pause.reset()
            except Exception as error:  # a start hook may raise anything
                wait = pause.next()
                report.trouble("beginning anew after a lost lease", error, wait)
                await asyncio.sleep(wait)


class _Life:
    """One incarnation of an embedded worker: a row and an engine for each pool. Begun once, ended once."""

    def __init__(
        self,
        app: Application,
        pools: Sequence[Pool],
        timings: Timings,
        rng: random.Random,
        *,
        threaded: bool,
    ) -> None:
        self._app = app
        self._pools = {str(uuid.UUID(int=rng.getrandbits(128), version=4)): pool for pool in pools}
        self._timings = timings
        self._rng = rng
        self._threaded = threaded
        self.ids = tuple(self._pools)
        self._engines: list[Engine] = []
        self._keeper: _Keeper | None = None

    async def begin(self) -> None:
        """Register, begin to beat, begin to claim. Where that fails, nothing is left of it."""
        await self._app.store.open()
        try:
            for worker_id, pool in self._pools.items():
                await self._register(worker_id, pool)
        except BaseException:
            await self._retire()
            raise
        engines = {worker_id: self._engine(worker_id, pool) for worker_id, pool in self._pools.items()}
        self._engines = list(engines.values())
        self._keeper = _Keeper(self._app, engines, self._timings, self._rng)
        try:
            await self._keeper.start(threaded=self._threaded)
            first, *others = self._engines
            await first.start()
            for engine in others:
                engine.executor.base = first.executor.base
                await engine.start()
            label_records()
        except BaseException:
            keeper, self._engines, self._keeper = self._keeper, [], None
            await self._let_go(keeper)
            raise

    async def _register(self, worker_id: str, pool: Pool) -> None:
        await self._app.store.add_worker(
            NewWorker(
                id=worker_id,
                name=EMBEDDED,
                pool=pool.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=pool.queues,
                slots=pool.concurrency,
                lease_seconds=self._timings.lease,
                version=__version__,
            )
        )

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

    async def lost(self) -> None:
        """Return once the lease of a pool is lost; never where there is none."""
        losses = [asyncio.create_task(engine.retired.wait()) for engine in self._engines]
        try:
            await asyncio.wait(losses, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for loss in losses:
                loss.cancel()

    async def end(self, grace: float | None) -> None:
        """Drain all pools, then run the stop hooks and retire."""
        engines, keeper = self._engines, self._keeper
        self._keeper = None
        if not engines or keeper is None:
            return
        try:
            await asyncio.gather(*(engine.drain(grace) for engine in engines))
            for engine in reversed(engines):  # the first one runs the stop hooks
                await engine.end()
        finally:
            self._engines = []
            await self._let_go(keeper)

    def shorten(self) -> None:
        """Give running tasks back now, if an end is under way."""
        for engine in self._engines:
            engine.shorten()

    async def _let_go(self, keeper: _Keeper) -> None:
        await keeper.stop()
        await self._retire()

    async def _retire(self) -> None:
        """Retire all rows; while the store is away, the leases run out instead."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self._timings.stop_grace):
                for worker_id in self.ids:
                    await self._app.store.retire_worker(
                        worker_id, why="stopped", loss=False, only_if_expired=False, culprit=NOBODY
                    )
        for worker_id in self.ids:
            scratch.remove(worker_id)


class _Keeper:
    """Beats for the engines of one loop and keeps house, in a thread of its own or in their loop."""

    def __init__(
        self, app: Application, engines: Mapping[str, Engine], timings: Timings, rng: random.Random
    ) -> None:
        self._app = app
        self._timings = timings
        self._engines = engines
        self._rng = rng
        self._engine_loop = asyncio.get_running_loop()
        self._loop = self._engine_loop
        self._thread: threading.Thread | None = None
        self._beating: asyncio.Task[None] | None = None
        self._steward: Steward | None = None
        self._asked_at: float | None = None
        """When the engine's loop was asked whether it runs; None: it has answered."""

    async def start(self, *, threaded: bool) -> None:
        if threaded:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="tidegate-keeper", daemon=True
            )
            self._thread.start()
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._begin(), self._loop))
        else:
            await self._begin()

    async def stop(self) -> None:
        if self._thread is None:
            await self._end()
            return
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), self._loop))
        parting = self._loop.shutdown_asyncgens()  # a store's connections of this loop end with it
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(parting, self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _begin(self) -> None:
        clock = time.monotonic if self._thread is not None else self._loop.time
        heartbeat = Heartbeat(
            store=self._app.store,
            timings=self._timings,
            alive=self._living,
            renewed=lambda worker_id, until: self._tell(self._engines[worker_id].good_until, until),
            retired=lambda worker_id: self._tell(self._engines[worker_id].lose),
            rng=self._rng,
        )
        self._steward = Steward(self._app.store, self._timings, rng=self._rng, clock=clock)
        self._steward.start()
        self._beating = asyncio.create_task(heartbeat.run(), name="tidegate heartbeat")

    async def _end(self) -> None:
        if self._steward is not None:
            await self._steward.stop()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

    def _living(self) -> list[str]:
        """Return our ids, unless the engines' loop has been blocked for longer than a stall may last."""
        if self._thread is None:
            return list(self._engines)
        now = time.monotonic()
        stalled = 0.0 if self._asked_at is None else now - self._asked_at
        if self._asked_at is None:
            self._asked_at = now
            self._tell(self._answer)
        return list(self._engines) if stalled <= self._timings.stall_limit else []

    def _answer(self) -> None:
        self._asked_at = None

    def _tell(self, what: object, *args: float) -> None:
        with contextlib.suppress(RuntimeError):  # the engine's loop has ended
            self._engine_loop.call_soon_threadsafe(what, *args)  # type: ignore[arg-type]
