"""The supervisor: starts pool processes, renews their leases, replaces those that end. Runs no user code.

run_worker
  Supervisor.run         until a signal
    read_manifest          a short-lived child process imports the application
    PoolProcesses          a ProcessRunner for each process: start, wait for its end, start the next
    Heartbeat              renews the leases of processes that are alive
    StallWatch             kills processes that do not answer
    MemoryWatch            replaces or kills processes that use too much memory
    ControlWatch           applies the orders to this worker
    MaintenanceLoop        promotes, reaps, deletes expired tasks
    ZombieReaper           reaps orphans that became our children
    StatusReporter         health, systemd, title
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import time
from collections.abc import Sequence

from tidegate.alerts.settings import AlertSettings
from tidegate.errors import ConfigError
from tidegate.store.connect import absolute_url
from tidegate.store.protocol import Store
from tidegate.worker import scratch, signals
from tidegate.worker.engine.heartbeat import Heartbeat
from tidegate.worker.engine.pool_main import EXIT_CONFIG
from tidegate.worker.maintenance.loop import MaintenanceLoop
from tidegate.worker.opening import open_with_retries
from tidegate.worker.settings import Pool, Timings, drain_grace
from tidegate.worker.supervisor.connections import log_connections, open_supervising
from tidegate.worker.supervisor.control_watch import ControlWatch
from tidegate.worker.supervisor.declarations import Declarations
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.manifest import Manifest, read_manifest
from tidegate.worker.supervisor.memory_watch import MemoryWatch
from tidegate.worker.supervisor.pool_process import OVERDUE
from tidegate.worker.supervisor.pool_processes import LaunchOptions, PoolProcesses
from tidegate.worker.supervisor.process_runner import ProcessRunner
from tidegate.worker.supervisor.reload import CodeReload, changed_sources
from tidegate.worker.supervisor.stall_watch import StallWatch
from tidegate.worker.supervisor.status_reporter import StatusReporter
from tidegate.worker.supervisor.stop_request import StopRequest, close_or_exit
from tidegate.worker.supervisor.unserved import warn_of_unserved
from tidegate.worker.supervisor.worker_health import describe_worker
from tidegate.worker.supervisor.zombie_reaper import ZombieReaper

log = logging.getLogger("tidegate.supervisor")

_RELEASE_GRACE_FACTOR = 4
"""How many stop graces a process may need after the grace time: one to find unanswered claims, one to stop
its functions, one to write their outcomes, and one to close a store that does not answer."""
EXIT_KILLED = 1
"""Exit code if a process had to be killed because it did not end in time."""


class Supervisor:
    """Keeps the pool processes of one worker command running.

    The supervisor takes the arguments of `run_worker`.
    """

    _store: Store
    _pools: PoolProcesses
    _heartbeat: Heartbeat
    _control_watch: ControlWatch
    _maintenance: MaintenanceLoop
    _manifest: Manifest
    _declarations: Declarations
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
        maintenance: bool,
        alerts: AlertSettings | None = None,
    ) -> None:
        self._application = application
        self._pools_override = pools
        self._timings_override = timings
        self._url_override = database_url
        self._name = name
        self._reload = reload
        self._runs_maintenance = maintenance
        self._alerts = alerts
        self._rng = random.Random()
        self._zombies = ZombieReaper(self._own_pids)
        self._stopping = StopRequest(self._rng)
        self._status_reporter = StatusReporter(
            "worker", name, get_health=self._get_health, is_progressing=self._is_progressing
        )
        self._code_reload = CodeReload(
            load=self._load_new_code,
            restart=lambda runner, grace, why: self._pools.replace(runner, grace, why),
            on_begin=self._status_reporter.reloading,
        )
        self._is_serving = self._was_ready = False
        self._exit_code = 0

    async def run(self) -> int:
        """Run until a signal has stopped everything; return the exit code."""
        self._zombies.watch()
        signals.stop_when_shell_exits(self._on_shell_exit)
        signals.install_handlers(
            stop=self._on_stop_signal,
            release=self._on_release_signal,
            reload=self._on_reload_signal,
            forward=self._on_forwarded_signal,
        )
        manifest = await self._stopping.run_unless_stopped(self._read_manifest())
        if manifest is None:
            log.info("stopped before any process was started")
            return 0
        self._manifest = manifest
        self._timings = self._timings_override or manifest.timings
        self._store = open_supervising(manifest.database_url)
        if await self._stopping.run_unless_stopped(self._open_store()):
            await self._serve()
        await close_or_exit(self._store, within=self._timings.stop_grace, code=self._exit_code)
        log.info("worker %s has stopped", self._name)
        return self._exit_code

    async def _serve(self) -> None:
        """Start everything, and stop it when no process is left."""
        self._maintenance = MaintenanceLoop(
            self._store,
            self._timings,
            self._manifest.retention,
            rng=self._rng,
            clock=time.monotonic,
            on_retired=scratch.remove_for_lost_worker,
            alerts=self._alerts,
        )
        self._heartbeat = self._make_heartbeat()
        self._control_watch = self._make_control_watch()
        self._pools = self._make_pools()
        self._is_serving = True
        if self._runs_maintenance:
            self._maintenance.start()
        self._declarations.start()
        watches = self._start_watches()
        await self._status_reporter.start()
        await scratch.remove_unknown(self._store)
        wanted = self._wanted_pools()
        pools = ", ".join(f"{pool.name} ({pool.processes}×{pool.concurrency})" for pool in wanted)
        log.info("worker %s: %s", self._name, pools)
        unserved_check = None
        try:
            await self._stopping.retry_until_stored(
                "reading the orders to this worker",
                self._control_watch.start,
                last_seconds=self._timings.stop_grace,
            )
            if not self._stopping.is_requested:
                self._pools.resize(wanted, 0.0)
                unserved_check = asyncio.create_task(
                    self._warn_of_unserved(wanted), name="tidegate unserved tasks"
                )
            await self._pools.wait_all_ended(watches)
        finally:
            jobs = [*watches, *filter(None, (self._code_reload.job, unserved_check))]
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self._declarations.stop()
            await self._maintenance.stop()
            await self._status_reporter.stop()
        if self._runs_maintenance:
            await self._maintenance.requeue_last_orphans(self._timings.stop_grace)

    async def _warn_of_unserved(self, wanted: tuple[Pool, ...]) -> None:
        """Log problems that affect this worker.

        The check runs in its own asyncio task because it counts all ready tasks.
        """
        await log_connections(self._store, self._name, sum(pool.processes for pool in wanted))
        configured = (*wanted, *self._manifest.pools)
        await warn_of_unserved(self._store, configured, self._manifest.functions)

    def _start_watches(self) -> list[asyncio.Task[None]]:
        works = {
            "heartbeat": self._heartbeat.run(),
            "control": self._control_watch.run(),
            "stall watch": StallWatch(self._pools.processes, limit=self._timings.stall_limit).run(),
            "memory watch": MemoryWatch(self._pools.processes, grace=self._grace).run(),
        }
        if self._reload:
            works["reload"] = self._watch_sources()
        return [asyncio.create_task(work, name=f"tidegate {name}") for name, work in works.items()]

    # --- what the application declares -------------------------------------------------------------------

    async def _read_manifest(self) -> Manifest:
        with self._zombies.paused():
            return await read_manifest(self._application, self._url_override)

    async def _open_store(self) -> bool:
        await open_with_retries(self._store.open)
        self._declarations = Declarations(self._store, self._manifest, rng=self._rng)
        await self._declarations.save()
        return True

    def _wanted_pools(self) -> tuple[Pool, ...]:
        return self._manifest.pools if self._pools_override is None else tuple(self._pools_override)

    async def _load_new_code(self, grace: float) -> list[ProcessRunner]:
        """Read the manifest of the current code and adjust the pools; return the runners to restart.

        Raises:
            ConfigError: The code cannot be loaded, or uses another database.
        """
        manifest = await self._read_manifest()
        if manifest.database_url != self._manifest.database_url:
            raise ConfigError("the application uses another database now", fix="restart the worker")
        self._manifest = manifest
        self._declarations.replace(manifest)
        self._pools.schedule_set = self._declarations.schedule_set
        await self._stopping.retry_until_stored(
            "saving the manifest", self._declarations.save, last_seconds=self._timings.stop_grace
        )
        return self._pools.resize(self._wanted_pools(), grace)

    # --- watching ----------------------------------------------------------------------------------------

    def _make_pools(self) -> PoolProcesses:
        pools = PoolProcesses(
            LaunchOptions(self._application, self._name, self._timings, self._url_override),
            store=self._store,
            stopping=self._stopping,
            zombies=self._zombies,
            rng=self._rng,
            wanted=self._control_watch.wanted,
            on_retired=self._requeue_orphans,
            on_bad_setup=self._on_bad_setup,
            on_killed=self._on_killed,
        )
        pools.schedule_set = self._declarations.schedule_set
        return pools

    def _make_control_watch(self) -> ControlWatch:
        return ControlWatch(
            self._store,
            name=self._name,
            host=socket.gethostname(),
            processes=lambda: self._pools.processes(),
            reload=lambda why, on_end: self._code_reload.start(why, self._grace(), on_end),
            rng=self._rng,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            store=self._store,
            timings=self._timings,
            live_worker_ids=lambda: [
                process.worker_id for process in self._pools.processes() if process.is_registered
            ],
            on_renewed=self._on_lease_renewed,
            on_retired=self._on_worker_retired,
            rng=self._rng,
        )

    def _on_lease_renewed(self, worker_id: str, good_until: float) -> None:
        if process := self._pools.process(worker_id):
            process.extend_lease(good_until)

    def _on_worker_retired(self, worker_id: str) -> None:
        if process := self._pools.process(worker_id):
            process.notify_lease_lost()

    async def _requeue_orphans(self) -> None:
        if self._runs_maintenance:
            await self._maintenance.requeue_orphans()

    def _own_pids(self) -> set[int]:
        if not self._is_serving:
            return set()
        return {process.pid for process in self._pools.processes()} | set(self._maintenance.own_pids())

    async def _watch_sources(self) -> None:
        async for path in changed_sources():
            self._start_reload(f"{path} changed", self._timings.stop_grace)

    # --- status ------------------------------------------------------------------------------------------

    def _get_health(self) -> Health:
        """Return the current health of this worker."""
        self._was_ready = self._was_ready or self._pools.ready() > 0
        return describe_worker(
            self._name,
            self._pools,
            absolute_url(self._manifest.database_url),
            is_restarting=self._code_reload.is_running,
            is_stopping=self._stopping.is_requested,
        )

    def _is_progressing(self) -> bool:
        """Return whether heartbeats go on, successful or not, and no heartbeat hangs."""
        return self._heartbeat.silent_seconds() < max(60.0, 2 * self._timings.lease)

    # --- signals and stopping ----------------------------------------------------------------------------

    def _on_stop_signal(self, number: signal.Signals) -> None:
        if self._stopping.is_requested:
            if self._is_serving:
                self._pools.release_tasks()
            return
        log.info("%s: draining; send it again to release running tasks now", number.name)
        self._stop()

    def _on_shell_exit(self) -> None:
        if not self._stopping.is_requested:
            log.info("the shell that started this worker has ended: draining")
            self._stop()

    def _on_release_signal(self) -> None:
        log.info("SIGQUIT: releasing running tasks now")
        self._stop()
        if self._is_serving:
            self._pools.release_tasks()

    def _on_reload_signal(self) -> None:
        if self._is_serving:
            self._start_reload("SIGHUP", self._grace())

    def _on_forwarded_signal(self, number: signal.Signals) -> None:
        if self._is_serving:
            self._pools.forward_signal(number)

    def _start_reload(self, why: str, grace: float) -> None:
        if not self._stopping.is_requested:
            self._code_reload.start(why, grace)

    def _on_bad_setup(self, pool: Pool) -> bool:
        """Stop the worker. If a process was ready before, retry only this process instead."""
        if self._reload or self._was_ready:
            return False
        log.error("pool %s cannot run: its process reports a wrong configuration", pool.name)
        self._exit_code = EXIT_CONFIG
        self._stop()
        return True

    def _stop(self) -> None:
        if self._stopping.is_requested:
            return
        self._stopping.request()
        if self._is_serving:
            grace = self._grace()
            self._pools.stop(grace)
            asyncio.get_running_loop().call_later(
                grace + _RELEASE_GRACE_FACTOR * self._timings.stop_grace, self._kill_all
            )
            self._status_reporter.stopping()

    def _kill_all(self) -> None:
        for process in self._pools.processes():
            log.error("pool %s: process %d is killed: it %s", process.pool.name, process.pid, OVERDUE)
            process.kill(OVERDUE)

    def _on_killed(self) -> None:
        self._exit_code = self._exit_code or EXIT_KILLED

    def _grace(self) -> float:
        """Return how many seconds running tasks may continue in a process that is ending."""
        limits = [function["timeout"] for function in self._manifest.functions.values()]
        return drain_grace(self._timings, [300.0 if limit is None else limit for limit in limits])
