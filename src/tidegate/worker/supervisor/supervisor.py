"""The supervisor: starts pool processes, keeps their leases, sees to their ends. Runs no user code.

run_worker
  Supervisor.run         until a signal
    read_manifest          a short-lived child imports the application
    Pools                  a Keeper for each process: start, wait for its end, start the next
    Heartbeat              beats for those that live and answer
    StallWatch             kills those that do not
    MemoryWatch            replaces or kills those that hold too much
    Steward                promotes, reaps, sweeps
    Zombies                reaps orphans that became ours
    Presence               health, systemd, title
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Sequence

from tidegate._version import __version__
from tidegate.errors import ConfigError, TidegateError
from tidegate.store.connect import absolute_url
from tidegate.store.protocol import Store
from tidegate.worker import scratch, signals
from tidegate.worker.heartbeat import Heartbeat
from tidegate.worker.logs import set_up_logging
from tidegate.worker.opening import open_in_time
from tidegate.worker.process import EXIT_CONFIG
from tidegate.worker.settings import Pool, Timings, drain_grace
from tidegate.worker.steward.steward import Steward
from tidegate.worker.supervisor.child import OVERDUE
from tidegate.worker.supervisor.closing import close_or_leave
from tidegate.worker.supervisor.connections import open_supervising, say_connections
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.manifest import Manifest, read_manifest
from tidegate.worker.supervisor.memory import MemoryWatch
from tidegate.worker.supervisor.pools import Pools, Terms
from tidegate.worker.supervisor.presence import Presence
from tidegate.worker.supervisor.reload import changed_sources
from tidegate.worker.supervisor.stalls import StallWatch
from tidegate.worker.supervisor.stopping import Stopping
from tidegate.worker.supervisor.unserved import warn_of_unserved
from tidegate.worker.supervisor.zombies import Zombies

log = logging.getLogger("tidegate.supervisor")

_GIVE_BACK_GRACES = 4
"""After the grace time a process may need the stop grace so often: to find claims that were never answered,
to end its bodies, to write how they ended, and to close a store that does not answer."""
EXIT_KILLED = 1
"""A process had to be killed because it did not end in time."""


def run_worker(
    application: str,
    *,
    pools: Sequence[Pool] | None = None,
    timings: Timings | None = None,
    database_url: str | None = None,
    name: str | None = None,
    reload: bool = False,
    steward: bool = True,
) -> int:
    """Run the workers of an application until SIGTERM or SIGINT; return the exit code.

    Args:
        application: `module:attribute`.
        pools: None: the application's own.
        timings: None: the application's own.
        database_url: None: the application's own.
        name: Shown to people; the host's name unless given. Never an identity.
        reload: Start the pool processes anew when a source file under the present directory changes.
        steward: False: leave the housekeeping to others.

    Raises:
        ConfigError: The application cannot be loaded.
        StoreError: The store cannot be opened.
    """
    signals.as_if_fresh()
    set_up_logging(application)

    async def supervise() -> int:
        supervisor = Supervisor(
            application,
            pools=pools,
            timings=timings,
            database_url=database_url,
            name=name or socket.gethostname(),
            reload=reload,
            steward=steward,
        )
        return await supervisor.run()

    return asyncio.run(supervise())


class Supervisor:
    """Keeps the pool processes of one worker command alive. The arguments are those of `run_worker`."""

    _store: Store
    _pools: Pools
    _heartbeat: Heartbeat
    _steward: Steward
    _manifest: Manifest
    _timings: Timings

    def __init__(
        self,
        application: str,
        *,
        pools: Sequence[Pool] | None,
        timings: Timings | None,
        database_url: str | None,
        name: str,
        reload: bool,
        steward: bool,
    ) -> None:
        self._application = application
        self._given_pools = pools
        self._given_timings = timings
        self._given_url = database_url
        self._name = name
        self._reload = reload
        self._with_steward = steward
        self._rng = random.Random()
        self._zombies = Zombies(self._own_pids)
        self._stopping = Stopping(self._rng)
        self._presence = Presence("worker", name, look=self._look, moving=self._is_moving)
        self._renewing: asyncio.Task[None] | None = None
        self._is_serving = False
        self._was_ready = False
        self._exit_code = 0

    async def run(self) -> int:
        """Run until a signal has stopped everything; return the exit code."""
        self._zombies.watch()
        signals.end_with_the_shell(self._shell_ended)
        signals.listen(
            stop=self._asked_to_stop,
            give_back=self._asked_to_give_back,
            renew=self._asked_to_renew,
            passed_on=self._asked_to_pass_on,
        )
        manifest = await self._stopping.unless_said(self._read_manifest())
        if manifest is None:
            log.info("stopped before anything was started")
            return 0
        self._manifest = manifest
        self._timings = self._given_timings or manifest.timings
        self._store = open_supervising(manifest.database_url)
        if await self._stopping.unless_said(self._open_store()):
            await self._serve()
        await close_or_leave(self._store, within=self._timings.stop_grace, code=self._exit_code)
        log.info("worker %s has stopped", self._name)
        return self._exit_code

    async def _serve(self) -> None:
        """Start everything, and end it when no process is left."""
        self._steward = Steward(
            self._store, self._timings, rng=self._rng, clock=time.monotonic, lost=scratch.remove_of_lost
        )
        self._heartbeat = self._make_heartbeat()
        self._pools = self._make_pools()
        self._is_serving = True
        if self._with_steward:
            self._steward.start()
        watches = self._start_watches()
        await self._presence.start()
        await self._clear_scratch()
        wanted = self._wanted()
        pools = ", ".join(f"{pool.name} ({pool.processes}×{pool.concurrency})" for pool in wanted)
        log.info("worker %s: %s", self._name, pools)
        look = None
        try:
            if not self._stopping.is_said:
                self._pools.fit(wanted, 0.0)
                look = asyncio.create_task(self._warn_of_unserved(wanted), name="tidegate unserved tasks")
            await self._pools.until_all_ended(watches)
        finally:
            jobs = [*watches, *(job for job in (self._renewing, look) if job is not None)]
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self._steward.stop()
            await self._presence.stop()
        if self._with_steward:
            await self._steward.take_up_the_last(self._timings.stop_grace)

    async def _warn_of_unserved(self, wanted: tuple[Pool, ...]) -> None:
        """Log what is wrong around this worker; in a task of its own, since it counts all ready tasks."""
        await say_connections(self._store, self._name, sum(pool.processes for pool in wanted))
        configured = (*wanted, *self._manifest.pools)
        await warn_of_unserved(self._store, configured, self._manifest.functions)

    def _start_watches(self) -> list[asyncio.Task[None]]:
        works = {
            "heartbeat": self._heartbeat.run(),
            "stall watch": StallWatch(self._pools.children, limit=self._timings.stall_limit).run(),
            "memory watch": MemoryWatch(self._pools.children, grace=self._grace).run(),
        }
        if self._reload:
            works["reload"] = self._watch_sources()
        return [asyncio.create_task(work, name=f"tidegate {name}") for name, work in works.items()]

    # --- what the application declares -------------------------------------------------------------------

    async def _read_manifest(self) -> Manifest:
        with self._zombies.left_alone():
            return await read_manifest(self._application, self._given_url)

    async def _open_store(self) -> bool:
        await open_in_time(self._store.open)
        await self._store.save_manifest(self._manifest.application, self._manifest.body)
        return True

    def _wanted(self) -> tuple[Pool, ...]:
        return self._manifest.pools if self._given_pools is None else tuple(self._given_pools)

    async def _renew(self, why: str, grace: float) -> None:
        """Start every process anew, one after the other, if the present code can be loaded."""
        self._presence.reloading()
        try:
            manifest = await self._read_manifest()
        except (ConfigError, OSError) as error:
            log.error("%s: the new code cannot be loaded, the old one goes on: %s", why, error)
            return
        if manifest.database_url != self._manifest.database_url:
            log.error("%s: the application names another database now, which needs a restart", why)
            return
        self._manifest = manifest
        await self._stopping.until_stored(
            "saving the manifest",
            lambda: self._store.save_manifest(manifest.application, manifest.body),
            last_seconds=self._timings.stop_grace,
        )
        for keeper in self._pools.fit(self._wanted(), grace):
            await keeper.renew(grace, why)
        log.info("%s: everything has started anew", why)

    # --- watching ----------------------------------------------------------------------------------------

    def _make_pools(self) -> Pools:
        return Pools(
            Terms(self._application, self._name, self._timings, self._given_url),
            store=self._store,
            stopping=self._stopping,
            zombies=self._zombies,
            rng=self._rng,
            retired=self._take_up_orphans,
            refused=self._set_up_is_wrong,
            had_to_kill=self._had_to_kill,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            store=self._store,
            timings=self._timings,
            alive=lambda: [child.worker_id for child in self._pools.children() if child.is_registered],
            renewed=self._renewed,
            retired=self._retired,
            rng=self._rng,
        )

    def _renewed(self, worker_id: str, good_until: float) -> None:
        if child := self._pools.child(worker_id):
            child.renewed(good_until)

    def _retired(self, worker_id: str) -> None:
        if child := self._pools.child(worker_id):
            child.lost()

    async def _take_up_orphans(self) -> None:
        if self._with_steward:
            await self._steward.take_up_orphans()

    def _own_pids(self) -> set[int]:
        return {child.pid for child in self._pools.children()} if self._is_serving else set()

    async def _watch_sources(self) -> None:
        async for path in changed_sources():
            self._begin_renewal(f"{path} changed", self._timings.stop_grace)

    async def _clear_scratch(self) -> None:
        """Remove what workers that are no more left behind, a day old at least."""
        try:
            living = {worker.id for worker in await self._store.workers()}
            await asyncio.to_thread(scratch.remove_all_but, living, 86_400.0, time.time())
        except (OSError, TidegateError) as error:
            log.warning("scratch directories could not be cleared: %s", error)

    # --- what others see ---------------------------------------------------------------------------------

    def _look(self) -> Health:
        """Return what there is to say of this worker now."""
        ready, wanted, children = self._pools.ready(), len(self._pools), self._pools.children()
        self._was_ready = self._was_ready or ready > 0
        busy, slots = sum(c.busy for c in children), sum(c.pool.concurrency for c in children)
        problems = loops = self._pools.crash_loops()
        if not wanted or ready < wanted:
            problems = [*problems, f"{ready} of {wanted} pool processes are ready"]
        problems = [*problems, *(f"pool {c.pool.name}: {c.trouble}" for c in children if c.trouble)]
        if self._renewing is not None and not self._renewing.done():
            problems = [*problems, "it starts anew"]
        if self._stopping.is_said:
            problems = [*problems, "it stops"]
        figures = f"{ready} of {wanted} processes ready, {busy} of {slots} slots busy"
        return Health(
            kind="worker",
            name=self._name,
            pid=os.getpid(),
            database_url=absolute_url(self._manifest.database_url),
            version=__version__,
            status="; ".join(["stopping"] * self._stopping.is_said + [figures, *loops]),
            problems=problems,
            crash_loops=loops,
        )

    def _is_moving(self) -> bool:
        """Whether beats go on: sent or refused, but none that never ends."""
        return self._heartbeat.silent_seconds() < max(60.0, 2 * self._timings.lease)

    # --- signals and stopping ----------------------------------------------------------------------------

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if self._stopping.is_said:
            if self._is_serving:
                self._pools.give_back()
            return
        log.info("%s: draining; once more to give running tasks back now", number.name)
        self._stop()

    def _shell_ended(self) -> None:
        if not self._stopping.is_said:
            log.info("the shell that started this worker has ended: draining")
            self._stop()

    def _asked_to_give_back(self) -> None:
        log.info("SIGQUIT: giving running tasks back now")
        self._stop()
        if self._is_serving:
            self._pools.give_back()

    def _asked_to_renew(self) -> None:
        if self._is_serving:
            self._begin_renewal("SIGHUP", self._grace())

    def _asked_to_pass_on(self, number: signal.Signals) -> None:
        if self._is_serving:
            self._pools.pass_on(number)

    def _begin_renewal(self, why: str, grace: float) -> None:
        if self._stopping.is_said:
            return
        log.info("%s: starting anew, one process after the other", why)
        if self._renewing is not None:
            self._renewing.cancel()
        self._renewing = asyncio.create_task(self._renew(why, grace), name="tidegate renewal")

    def _set_up_is_wrong(self, pool: Pool) -> bool:
        """Stop everything, unless it has worked before: then others go on, and this one is tried again."""
        if self._reload or self._was_ready:
            return False
        log.error("pool %s cannot run: its process says that the set-up is wrong", pool.name)
        self._exit_code = EXIT_CONFIG
        self._stop()
        return True

    def _stop(self) -> None:
        if self._stopping.is_said:
            return
        self._stopping.say()
        if self._is_serving:
            grace = self._grace()
            self._pools.stop(grace)
            asyncio.get_running_loop().call_later(
                grace + _GIVE_BACK_GRACES * self._timings.stop_grace, self._kill_all
            )
            self._presence.stopping()

    def _kill_all(self) -> None:
        for child in self._pools.children():
            log.error("pool %s: process %d is killed: it %s", child.pool.name, child.pid, OVERDUE)
            child.kill(OVERDUE)

    def _had_to_kill(self) -> None:
        self._exit_code = self._exit_code or EXIT_KILLED

    def _grace(self) -> float:
        """Return how long running tasks may go on in a process that ends."""
        limits = [function["timeout"] for function in self._manifest.functions.values()]
        return drain_grace(self._timings, [300.0 if limit is None else limit for limit in limits])
