"""Keeps one process of a pool running: starts it, waits for its end, starts the next one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.pool_main import EXIT_CONFIG, EXIT_REPLACE
from tidegate.worker.settings import Pool
from tidegate.worker.supervisor.crash_loop import CrashLoopDetector
from tidegate.worker.supervisor.pool_process import PoolProcess

log = logging.getLogger("tidegate.supervisor")

HEALTHY_SECONDS = 30.0
"""A process that ran longer than this is restarted at once when it ends."""
QUICK_REPLACE_SECONDS = 3.0
"""A process that asks to be replaced is restarted at once if it ran longer than this. One that asks sooner
may ask again and again."""


class ProcessHost(Protocol):
    """What a process runner needs from its supervisor."""

    async def start(self, pool: Pool, runner: ProcessRunner) -> PoolProcess:
        """Start a pool process, attach it to the runner, and register it.

        Raises:
            OSError: No process can be started.
        """
        ...

    async def retire(self, process: PoolProcess, why: str) -> None:
        """Retire the row of a dead process; its tasks are requeued."""
        ...

    @property
    def on_killed(self) -> Callable[[], None]:
        """Called when a process had to be killed while the worker stops."""
        ...

    @property
    def on_bad_setup(self) -> Callable[[Pool], bool]:
        """Called when a process reports a wrong configuration; returns whether the whole worker stops."""
        ...


class ProcessRunner:
    """Runs one pool process after another: when one ends, the next one is started.

    Args:
        pool: The pool that the next process serves; may be replaced at any time.
        host: Starts and retires processes.
        crash_loop: Counts the deaths of the pool's processes.
        rng: For jitter.
    """

    def __init__(
        self, pool: Pool, *, host: ProcessHost, crash_loop: CrashLoopDetector, rng: random.Random
    ) -> None:
        self.pool = pool
        self.crash_loop = crash_loop
        self.process: PoolProcess | None = None
        """The current process; None while none runs."""
        self._host = host
        self._pause = BackoffDelay(rng, first=0.5, cap=30.0)
        self._stopping = False
        self._replacements = 0
        self._grace = 0.0
        self._woken = asyncio.Event()
        self._replaced = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the current process has started and takes tasks."""
        return self.process is not None and self.process.is_ready and not self.process.drain_reason

    async def run(self) -> None:
        """Keep a process running until `stop`."""
        while not self._stopping:
            self._woken.clear()
            started_at, replacements = time.monotonic(), self._replacements
            try:
                process = await self._host.start(self.pool, self)
            except OSError as error:  # no memory or process ids: this may be temporary
                wait = self._pause.next()
                log.error(
                    "pool %s: no process can be started (%s); retrying in %.1f s", self.pool.name, error, wait
                )
                await self._wait(wait)
                continue
            if self._stopping:
                process.release()
            elif replacements != self._replacements:  # the process may have imported the old code
                process.drain(self._grace, "its code is already outdated")
            code = await process.wait_ended()
            self.process = None
            await self._host.retire(process, process.describe_end(code))
            if self._stopping:
                self._log_kill(process, code)
            else:
                await self._wait(self._restart_delay(process, code, time.monotonic() - started_at))

    def attach(self, process: PoolProcess) -> None:
        """Set the current process, which was just started."""
        self.process = process
        process.on_ready = self._on_ready
        if process.is_ready:
            self._on_ready(process)

    def stop(self, grace: float, why: str = "the worker stops") -> None:
        """Let the current process end within `grace` seconds, and start no new one."""
        self._stopping = True
        self._woken.set()
        self._replaced.set()
        if self.process is not None:
            self.process.drain(grace, why)

    async def wait_ready(self) -> None:
        """Wait until a process of this runner is ready."""
        await self._replaced.wait()

    async def replace(self, grace: float, why: str) -> None:
        """Replace the current process by a new one, and wait until the new one is ready.

        The current process ends first, so there are never more processes than configured. If the new one
        cannot start, this call does not return, so the caller leaves the other processes as they are.

        Args:
            grace: Seconds that running tasks may continue; then they are released.
            why: For logs.
        """
        self._replacements += 1
        self._grace = grace
        self._pause.reset()
        self._replaced.clear()
        self._woken.set()
        if self.process is not None:
            self.process.drain(grace, why)
        await self._replaced.wait()

    def _on_ready(self, process: PoolProcess) -> None:
        if process is self.process and not process.drain_reason:
            self._replaced.set()

    def _log_kill(self, process: PoolProcess, code: int) -> None:
        """Log, while the worker stops, that a process did not end normally or had to kill child processes."""
        name, reason = self.pool.name, process.describe_end(code)
        if code != 0:
            log.error("pool %s: process %d ended (%s); its tasks are requeued", name, process.pid, reason)
        if process.children_killed:
            log.warning(
                "pool %s: %d child processes were killed because their tasks did not stop",
                name,
                process.children_killed,
            )
        if process.kill_reason or process.children_killed:
            self._host.on_killed()

    def _restart_delay(self, process: PoolProcess, code: int, lived: float) -> float:
        """Log the end of a process, and return the seconds until the next one starts."""
        name, reason = self.pool.name, process.describe_end(code)
        if process.drain_reason and code == 0:
            log.info("pool %s: process %d has ended: %s", name, process.pid, process.drain_reason)
            if not process.is_over_memory or lived > HEALTHY_SECONDS:
                return 0.0
            reason = f"{process.drain_reason}, soon after its start: is memory_soft_limit too low?"
        if code == EXIT_CONFIG and self._host.on_bad_setup(self.pool):
            return 0.0
        self.crash_loop.record_death(reason)
        if lived > HEALTHY_SECONDS:
            self._pause.reset()
        wait = (
            0.0
            if lived > (QUICK_REPLACE_SECONDS if code == EXIT_REPLACE else HEALTHY_SECONDS)
            else self._pause.next()
        )
        log.error(
            "pool %s: process %d ended (%s); the next starts in %.1f s", name, process.pid, reason, wait
        )
        return wait

    async def _wait(self, seconds: float) -> None:
        """Wait this long, or until `stop` or `replace` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
