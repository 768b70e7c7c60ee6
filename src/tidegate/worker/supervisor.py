"""The supervisor: starts pool processes, keeps their leases, sees to their ends. Runs no user code.

run_worker
  read_manifest          a short-lived child imports the application
  Supervisor.run         until a signal
    _keep                one for each pool process: start, wait for its end, start the next
    Heartbeat            beats for those that live and answer
    _watch_stalls        kills those that do not
    Steward              promotes, reaps, sweeps
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence

from tidegate._version import __version__
from tidegate.errors import StoreError, TidegateError
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.rows import NewWorker
from tidegate.worker import scratch
from tidegate.worker.child import Child
from tidegate.worker.heartbeat import Heartbeat
from tidegate.worker.logs import set_up_logging
from tidegate.worker.manifest import Manifest, read_manifest
from tidegate.worker.pause import Pause
from tidegate.worker.process import EXIT_CONFIG, EXIT_REPLACE
from tidegate.worker.reload import changed_sources
from tidegate.worker.settings import Pool, Timings, drain_grace
from tidegate.worker.steward.steward import Steward

log = logging.getLogger("tidegate.supervisor")

HEALTHY_SECONDS = 30.0
"""A process that lived so long is restarted at once when it ends."""
PING_SECONDS = 1.0


def run_worker(
    application: str,
    *,
    pools: Sequence[Pool] | None = None,
    timings: Timings | None = None,
    database_url: str | None = None,
    name: str | None = None,
    reload: bool = False,
) -> int:
    """Run the workers of an application until SIGTERM or SIGINT; return the exit code.

    Args:
        application: `module:attribute`.
        pools: None: the application's own.
        timings: None: the application's own.
        database_url: None: the application's own.
        name: Shown to people; the host's name unless given. Never an identity.
        reload: Start the pool processes anew when a source file under the present directory changes.

    Raises:
        ConfigError: The application cannot be loaded.
        StoreError: The store cannot be opened.
    """
    set_up_logging()
    manifest = read_manifest(application, database_url)
    supervisor = Supervisor(
        manifest,
        store=open_store(manifest.database_url),
        pools=tuple(pools) if pools is not None else manifest.pools,
        timings=timings or manifest.timings,
        database_url=database_url,
        name=name or socket.gethostname(),
        reload=reload,
    )
    return asyncio.run(supervisor.run())


class Supervisor:
    """Keeps the pool processes of one worker command alive."""

    def __init__(
        self,
        manifest: Manifest,
        *,
        store: Store,
        pools: tuple[Pool, ...],
        timings: Timings,
        database_url: str | None,
        name: str,
        reload: bool = False,
    ) -> None:
        self._manifest = manifest
        self._store = store
        self._pools = pools
        self._timings = timings
        self._database_url = database_url
        self._name = name
        self._reload = reload
        self._rng = random.Random()
        self._children: dict[str, Child] = {}
        self._signals = 0
        self._stopping = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run until a signal has stopped everything; return the exit code."""
        await self._store.open()
        await self._store.save_manifest(self._manifest.application, self._manifest.body)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        steward = Steward(self._store, self._timings, rng=self._rng, clock=time.monotonic)
        steward.start()
        background = [
            asyncio.create_task(self._heartbeat().run(), name="tidegate heartbeat"),
            asyncio.create_task(self._watch_stalls(), name="tidegate stall watch"),
        ]
        if self._reload:
            background.append(asyncio.create_task(self._watch_sources(), name="tidegate reload"))
        self._clear_scratch()
        log.info(
            "worker %s: %s",
            self._name,
            ", ".join(f"{p.name} ({p.processes}×{p.concurrency})" for p in self._pools),
        )
        keepers = [self._keep(pool, steward) for pool in self._pools for _ in range(pool.processes)]
        await asyncio.gather(*keepers)
        for job in background:
            job.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await steward.stop()
        await self._store.close()
        log.info("worker %s has stopped", self._name)
        return self._exit_code

    # --- one pool process after the other ----------------------------------------------------------------

    async def _keep(self, pool: Pool, steward: Steward) -> None:
        pause = Pause(self._rng, first=0.5, cap=30.0)
        while not self._stopping.is_set():
            started_at = time.monotonic()
            child = await self._start(pool)
            code = await child.ended()
            del self._children[child.worker_id]
            why = child.how_it_ended(code)
            await self._retire(child, why, steward)
            if code == EXIT_CONFIG and not self._reload:
                log.error("pool %s cannot run: its process says that the set-up is wrong", pool.name)
                self._exit_code = EXIT_CONFIG
                self._stop_all()
            elif not self._stopping.is_set() and code != 0:
                lived = time.monotonic() - started_at
                if lived > HEALTHY_SECONDS:
                    pause.reset()
                wait = 0.0 if lived > HEALTHY_SECONDS or code == EXIT_REPLACE else pause.next()
                log.error(
                    "pool %s: process %d ended (%s); the next starts in %.1f s",
                    pool.name,
                    child.pid,
                    why,
                    wait,
                )
                await self._sleep_unless_stopped(wait)

    async def _start(self, pool: Pool) -> Child:
        child = Child(
            application=self._manifest.application,
            pool=pool,
            timings=self._timings,
            database_url=self._database_url,
        )
        await child.start()
        self._children[child.worker_id] = child
        row = NewWorker(
            id=child.worker_id,
            name=self._name,
            pool=pool.name,
            host=socket.gethostname(),
            pid=child.pid,
            queues=pool.queues,
            slots=pool.concurrency,
            lease_seconds=self._timings.lease,
            version=__version__,
        )
        asked_at = time.monotonic()
        await self._until_stored("registering a process", lambda: self._store.add_worker(row))
        child.renewed(asked_at + self._timings.lease)
        if self._stopping.is_set():
            child.release()
        return child

    async def _retire(self, child: Child, why: str, steward: Steward) -> None:
        """Retire a dead process's row; its pid is reaped and its group killed, so nothing of it runs on."""
        await self._until_stored(
            "retiring a process",
            lambda: self._store.retire_worker(
                child.worker_id, why=why, loss=False, only_if_expired=False, culprit=child.culprit
            ),
        )
        await steward.take_up_orphans()

    async def _until_stored(self, what: str, act: Callable[[], object]) -> None:
        """Do it, again and again while the store is away; a second stop signal ends the trying."""
        pause = Pause(self._rng)
        while True:
            try:
                await act()  # type: ignore[misc]
                return
            except StoreError as error:
                if self._signals:
                    log.warning("%s: given up while stopping (%s); its lease will run out", what, error)
                    return
                log.warning("%s: the store is away (%s)", what, error)
                await self._sleep_unless_stopped(pause.next())

    # --- watching ----------------------------------------------------------------------------------------

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            store=self._store,
            timings=self._timings,
            alive=lambda: list(self._children),
            renewed=self._renewed,
            retired=self._retired,
            rng=self._rng,
        )

    def _renewed(self, worker_id: str, good_until: float) -> None:
        if worker_id in self._children:
            self._children[worker_id].renewed(good_until)

    def _retired(self, worker_id: str) -> None:
        if worker_id in self._children:
            self._children[worker_id].lost()

    async def _watch_stalls(self) -> None:
        while True:
            await asyncio.sleep(min(PING_SECONDS, self._timings.stall_limit / 4))
            for child in list(self._children.values()):
                child.ping()
                stalled = child.stalled_seconds()
                if stalled > self._timings.stall_limit:
                    log.error("process %d has not answered for %.0f s; it is killed", child.pid, stalled)
                    child.kill(f"did not answer for {stalled:.0f} s (stall limit)")

    async def _watch_sources(self) -> None:
        async for path in changed_sources():
            log.info("%s changed: starting anew", path)
            for child in list(self._children.values()):
                child.drain(self._timings.stop_grace)

    # --- stopping ----------------------------------------------------------------------------------------

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("%s: draining; once more to give running tasks back now", signal.Signals(number).name)
            self._stop_all()
        else:
            for child in self._children.values():
                child.release()

    def _stop_all(self) -> None:
        self._stopping.set()
        grace = drain_grace(self._timings, self._timeouts())
        for child in self._children.values():
            child.drain(grace)
        asyncio.get_running_loop().call_later(grace + 3 * self._timings.stop_grace, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill("did not end within its grace time")

    def _timeouts(self) -> list[float]:
        limits = [function["timeout"] for function in self._manifest.functions.values()]
        return [300.0 if limit is None else limit for limit in limits]

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _clear_scratch(self) -> None:
        """Remove what workers of earlier boots left behind, a day old at least."""
        try:
            scratch.remove_all_but(set(self._children), 86_400.0, time.time())
        except (OSError, TidegateError) as error:
            log.warning("scratch directories could not be cleared: %s", error)
