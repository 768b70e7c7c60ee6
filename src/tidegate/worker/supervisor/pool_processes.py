"""All pool processes of one worker: as many as the pools say, registered, and retired when they are dead."""

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
from tidegate.store.protocol import Store
from tidegate.store.rows import NewWorker
from tidegate.worker.settings import Pool, Timings
from tidegate.worker.supervisor.crash_loop import CrashLoopDetector
from tidegate.worker.supervisor.pool_process import PoolProcess
from tidegate.worker.supervisor.process_runner import ProcessRunner
from tidegate.worker.supervisor.stop_request import StopRequest
from tidegate.worker.supervisor.zombie_reaper import ZombieReaper

log = logging.getLogger("tidegate.supervisor")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What every pool process of a worker is started with, and is known by."""

    application: str
    name: str
    """Of the worker."""
    timings: Timings
    database_url: str | None
    """None: the application's own."""


class PoolProcesses:
    """Keeps the pool processes.

    Args:
        terms: What they are started with.
        store: Where their rows are.
        stopping: The worker's.
        zombies: Told while a process is started.
        rng: For jitter.
        on_retired: Called when runs of a dead process can be taken up again.
        on_bad_setup: Called when a process reports a wrong set-up; returns whether the worker stops.
        on_killed: Called when, while the worker stops, a process had to be killed.
    """

    def __init__(
        self,
        options: LaunchOptions,
        *,
        store: Store,
        stopping: StopRequest,
        zombies: ZombieReaper,
        rng: random.Random,
        on_retired: Callable[[], Awaitable[None]],
        on_bad_setup: Callable[[Pool], bool],
        on_killed: Callable[[], None],
    ) -> None:
        self._options = options
        self._store = store
        self._stopping = stopping
        self._zombies = zombies
        self._rng = rng
        self._on_retired = on_retired
        self.on_bad_setup = on_bad_setup
        self.on_killed = on_killed
        self._runners: dict[tuple[str, int], ProcessRunner] = {}
        """By pool and number: who keeps a process there."""
        self._runner_tasks: dict[asyncio.Task[None], ProcessRunner] = {}
        """Those, and the ones whose place is gone and whose last process still ends."""
        self._crash_loops: dict[str, CrashLoopDetector] = {}

    def __len__(self) -> int:
        return len(self._runners)

    def processes(self) -> list[PoolProcess]:
        """Return the living processes."""
        return [runner.process for runner in self._runner_tasks.values() if runner.process is not None]

    def process(self, worker_id: str) -> PoolProcess | None:
        """Return one of them by its worker's id."""
        return next((process for process in self.processes() if process.worker_id == worker_id), None)

    def ready(self) -> int:
        """Return how many take tasks, with a lease that holds."""
        now = time.monotonic()
        present = [runner.process for runner in self._runners.values() if runner.is_ready]
        return sum(process is not None and process.good_until > now for process in present)

    def crash_loops(self) -> list[str]:
        """Return a sentence for each pool whose processes die again and again."""
        return [
            description for crash_loop in self._crash_loops.values() if (description := crash_loop.describe())
        ]

    def resize(self, pools: Sequence[Pool], grace: float) -> list[ProcessRunner]:
        """Keep as many processes as these pools say; return those keepers that were there before.

        Args:
            pools: What is wanted.
            grace: Seconds the tasks of those that are not wanted any more may go on.
        """
        wanted = {(pool.name, number): pool for pool in pools for number in range(pool.processes)}
        for place in self._runners.keys() - wanted.keys():
            self._runners.pop(place).stop(grace)
        kept = list(self._runners.values())
        for place, pool in wanted.items():
            if place in self._runners:
                self._runners[place].pool = pool
            else:
                self._runners[place] = self._start_runner(pool)
        return kept

    async def wait_all_ended(self, watched: Iterable[asyncio.Task[None]]) -> None:
        """Wait until no process is kept any more.

        Args:
            watched: Jobs that must go on meanwhile.

        Raises:
            Exception: One of those has ended, or a keeper has failed. Better to end, and to be started anew,
                than to go on with half of a supervisor.
        """
        while self._runner_tasks:
            ended, _ = await asyncio.wait(
                [*self._runner_tasks, *watched], return_when=asyncio.FIRST_COMPLETED
            )
            for job in ended:
                job.result()
                self._runner_tasks.pop(job, None)

    def stop(self, grace: float) -> None:
        """Let every process end within `grace` seconds, and start none after it."""
        for runner in self._runner_tasks.values():
            runner.stop(grace)

    def release_tasks(self) -> None:
        """Have every process give its tasks back and end now."""
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

    # --- what a keeper asks for --------------------------------------------------------------------------

    async def start(self, pool: Pool, runner: ProcessRunner) -> PoolProcess:
        """Start a child, have the keeper hold it, and register it.

        Raises:
            OSError: No process is to be had.
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
        row = NewWorker(
            id=process.worker_id,
            name=options.name,
            pool=pool.name,
            host=socket.gethostname(),
            pid=process.pid,
            queues=pool.queues,
            slots=pool.concurrency,
            lease_seconds=options.timings.lease,
            version=__version__,
            application=options.application,
        )
        asked_at = time.monotonic()
        await self._retry_until_stored("registering a process", lambda: self._store.add_worker(row))
        process.is_registered = True
        process.extend_lease(asked_at + options.timings.lease)
        return process

    async def retire(self, process: PoolProcess, why: str) -> None:
        """Retire a dead process's row; its pid is reaped and its group killed, so nothing of it runs on."""
        await self._retry_until_stored(
            "retiring a process",
            lambda: self._store.retire_worker(
                process.worker_id, why=why, is_loss=False, only_if_expired=False, culprit=process.culprit
            ),
        )
        await self._on_retired()

    async def _retry_until_stored(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        await self._stopping.retry_until_stored(what, act, last_seconds=self._options.timings.stop_grace)
