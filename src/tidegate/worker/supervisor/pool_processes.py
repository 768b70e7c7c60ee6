"""All pool processes of one worker: started as configured, registered, and retired when they die."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tidegate._version import __version__
from tidegate.store.controls import WantedSettings
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.supervisor.crash_loop import CrashLoopDetector
from tidegate.worker.supervisor.pool_process import PoolProcess
from tidegate.worker.supervisor.process_runner import ProcessRunner
from tidegate.worker.supervisor.stop_request import StopRequest
from tidegate.worker.supervisor.zombie_reaper import ZombieReaper

log = logging.getLogger("tidegate.supervisor")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options with which every pool process of a worker is started and registered."""

    application: str
    name: str
    """The worker's name."""
    timings: Timings
    database_url: str | None
    """The URL of the database; None uses the application's own."""


class PoolProcesses:
    """Keeps the pool processes running.

    Args:
        options: The options with which the processes are started.
        store: Holds their worker rows.
        stopping: The worker's stop request.
        zombies: Paused while a process is started.
        rng: For jitter.
        wanted: Returns the settings requested for a process that is starting.
        on_retired: Called when the tasks of a dead process can be requeued.
        on_bad_setup: Called when a process reports a wrong configuration; returns whether the worker stops.
        on_killed: Called when a process had to be killed while the worker stops.
    """

    def __init__(
        self,
        options: LaunchOptions,
        *,
        store: Store,
        stopping: StopRequest,
        zombies: ZombieReaper,
        rng: random.Random,
        wanted: Callable[[PoolProcess], WantedSettings] = lambda process: WantedSettings(),
        on_retired: Callable[[], Awaitable[None]],
        on_bad_setup: Callable[[Pool], bool],
        on_killed: Callable[[], None],
    ) -> None:
        self.schedule_set = ""
        """The set of schedules that the application declares, for the rows of processes that start."""
        self._options = options
        self._store = store
        self._stopping = stopping
        self._zombies = zombies
        self._rng = rng
        self._wanted = wanted
        self._on_retired = on_retired
        self.on_bad_setup = on_bad_setup
        self.on_killed = on_killed
        self._runners: dict[tuple[str, int], ProcessRunner] = {}
        """The process runners by pool and number."""
        self._runner_tasks: dict[asyncio.Task[None], ProcessRunner] = {}
        """The current runners, and removed runners whose last process has not ended yet."""
        self._crash_loops: dict[str, CrashLoopDetector] = {}

    def __len__(self) -> int:
        return len(self._runners)

    def processes(self) -> list[PoolProcess]:
        """Return the living processes."""
        return [runner.process for runner in self._runner_tasks.values() if runner.process is not None]

    def process(self, worker_id: str) -> PoolProcess | None:
        """Return the living process with this worker id; None if there is none."""
        return next((process for process in self.processes() if process.worker_id == worker_id), None)

    def ready(self) -> int:
        """Return how many processes take tasks and have a valid lease."""
        now = time.monotonic()
        ready = [runner.process for runner in self._runners.values() if runner.is_ready]
        return sum(process is not None and process.good_until > now for process in ready)

    def crash_loops(self) -> list[str]:
        """Return a sentence for each pool with a crash loop."""
        return [
            description for crash_loop in self._crash_loops.values() if (description := crash_loop.describe())
        ]

    def resize(self, pools: Sequence[Pool], grace: float) -> list[ProcessRunner]:
        """Run as many processes as these pools need; return the earlier runners that remain.

        Args:
            pools: The wanted pools.
            grace: Seconds that tasks of surplus processes may go on.
        """
        wanted = {(pool.name, number): pool for pool in pools for number in range(pool.processes)}
        for key in self._runners.keys() - wanted.keys():
            self._runners.pop(key).stop(grace)
        kept = list(self._runners.values())
        for key, pool in wanted.items():
            if key in self._runners:
                self._runners[key].pool = pool
            else:
                self._runners[key] = self._start_runner(pool)
        return kept

    async def replace(self, runner: ProcessRunner, grace: float, why: str) -> None:
        """Replace the process of a runner by a new one, and wait until the new one is ready.

        The old process ends first, unless its pool has `overlap`: then it goes on until the new one is ready.
        If the new process cannot start, this call does not return.
        """
        if not runner.pool.overlap:
            await runner.replace(grace, why)
            return
        key = next((key for key, each in self._runners.items() if each is runner), None)
        if key is None:  # the pool was made smaller meanwhile
            return
        self._runners[key] = following = self._start_runner(runner.pool)
        try:
            await following.wait_ready()
        except asyncio.CancelledError:
            if self._runners.get(key) is following:
                self._runners[key] = runner
            following.stop(0.0)
            raise
        runner.stop(grace, why)

    async def wait_all_ended(self, watched: Iterable[asyncio.Task[None]]) -> None:
        """Wait until every runner has ended.

        Args:
            watched: Jobs that must keep running meanwhile.

        Raises:
            Exception: A job or a runner failed. The worker must not go on without it, but end and be
                restarted.
        """
        while self._runner_tasks:
            ended, _ = await asyncio.wait(
                [*self._runner_tasks, *watched], return_when=asyncio.FIRST_COMPLETED
            )
            for job in ended:
                job.result()
                self._runner_tasks.pop(job, None)

    def stop(self, grace: float) -> None:
        """Let every process end within `grace` seconds, and start no new one."""
        for runner in self._runner_tasks.values():
            runner.stop(grace)

    def release_tasks(self) -> None:
        """Have every process release its tasks and end now."""
        for process in self.processes():
            process.release()

    def forward_signal(self, number: signal.Signals) -> None:
        """Send every process a signal."""
        for process in self.processes():
            process.send_signal(number)

    def _start_runner(self, pool: Pool) -> ProcessRunner:
        crash_loop = self._crash_loops.setdefault(pool.name, CrashLoopDetector(pool.name, time.monotonic))
        runner = ProcessRunner(pool, host=self, crash_loop=crash_loop, rng=self._rng)
        self._runner_tasks[asyncio.create_task(runner.run(), name=f"tidegate pool {pool.name}")] = runner
        return runner

    # --- called by the runners ---------------------------------------------------------------------------

    async def start(self, pool: Pool, runner: ProcessRunner) -> PoolProcess:
        """Start a pool process, attach it to the runner, and register it.

        Raises:
            OSError: No process can be started.
        """
        options = self._options
        process = PoolProcess(
            application=options.application,
            pool=pool,
            timings=options.timings,
            database_url=options.database_url,
        )
        with self._zombies.paused():
            await process.start()
            runner.attach(process)
        if (wanted := self._wanted(process)).rows:
            # sent before the lease begins, so that a quiet process claims nothing at its start
            process.set(wanted)
        row = NewWorker(
            id=process.worker_id,
            name=options.name,
            pool=pool.name,
            host=socket.gethostname(),
            pid=process.pid,
            queues=pool.queues,
            slots=process.slots,
            lease_seconds=options.timings.lease,
            version=__version__,
            application=options.application,
            schedule_set=self.schedule_set,
            most_slots=pool.most_slots,
        )
        requested_at = time.monotonic()
        await self._retry_until_stored("registering a process", lambda: self._store.add_worker(row))
        process.is_registered = True
        process.extend_lease(requested_at + options.timings.lease)
        return process

    async def retire(self, process: PoolProcess, why: str) -> None:
        """Retire the row of a dead process. Its process group was killed, so none of its code still runs."""
        await self._retry_until_stored(
            "retiring a process",
            lambda: self._store.retire_worker(
                process.worker_id, why=why, is_loss=False, only_if_expired=False, culprit=process.culprit
            ),
        )
        await self._on_retired()

    async def _retry_until_stored(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        await self._stopping.retry_until_stored(what, act, last_seconds=self._options.timings.stop_grace)
