"""The child processes of one pool process: started when needed, kept warm, replaced when worn out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.children.process import ChildDied, ChildProcess, NoChildAvailable
from tidegate.worker.children.vram import VramLimit
from tidegate.worker.process_snapshot import ProcessSnapshot

log = logging.getLogger("tidegate.worker")

MEMORY_CHECK_SECONDS = 0.2
CONFIRM_SECONDS = 0.03
WAITERS_PER_START = 2
"""How many runs may wait for each child process that can be started at the same time."""
FIRST_RESTART_SECONDS = 1.0
"""Upper bound of the first pause before the next try, after a child process could not be started."""


@dataclass(frozen=True, slots=True)
class ChildRules:
    """When a child process is replaced or killed. Its memory limits include the processes that it started."""

    max_runs: int = 1_000
    """A child process is replaced after this many runs, so that small leaks stay small."""
    soft_bytes: int | None = None
    """A child process that uses more memory than this is replaced after its current run."""
    hard_bytes: int | None = None
    """A child process that uses more memory than this is killed."""
    gpus: tuple[int | str, ...] = ()
    """GPU devices, assigned in turn; each child process sees one."""
    vram: VramLimit | None = None
    """A child process that uses more GPU memory than this is replaced after its current run."""


class ChildPool:
    """Lends child processes to runs. Belongs to one event loop.

    Args:
        application: `module:attribute` that the child processes import.
        rules: When child processes are replaced or killed.
        on_available: Called when `available` may have risen.
        snapshot: The process state that child processes start with; None: the state of this process at that
            time.
    """

    def __init__(
        self,
        application: str,
        rules: ChildRules,
        on_available: Callable[[], None] = lambda: None,
        snapshot: ProcessSnapshot | None = None,
    ) -> None:
        self.start_error = ""
        """Why no child process can be started; empty if one can. While set, no task is claimed for a child
        process."""
        self._restart_task: asyncio.Task[None] | None = None
        self._application = application
        self._snapshot = snapshot
        self._rules = rules
        self._on_available = on_available
        self._idle: list[ChildProcess] = []
        self._living: dict[ChildProcess, int | None] = {}
        """Every living child process, with the memory limit of the task it runs."""
        self._closing: set[asyncio.Task[None]] = set()
        self._memory_watch: asyncio.Task[None] | None = None
        # An import keeps a core busy. A pool whose child processes keep dying must not take all cores.
        self._max_starting = max(1, (os.cpu_count() or 1) // 2)
        self._start_semaphore = asyncio.Semaphore(self._max_starting)
        self._waiters: deque[asyncio.Future[ChildProcess]] = deque()
        """Runs that wait for a child process. The first gets the next process that is released or started."""
        self._start_tasks: set[asyncio.Task[None]] = set()
        self._waiting_count = 0
        """Runs inside `acquire` that have no child process yet."""

    @property
    def available(self) -> int:
        """How many more runs can get a child process soon.

        If no process can be started, only idle ones count.
        """
        if self.start_error:
            return len(self._idle)
        return max(0, len(self._idle) + WAITERS_PER_START * self._max_starting - self._waiting_count)

    @property
    def processes(self) -> Sequence[ChildProcess]:
        """The living child processes, idle and busy."""
        return tuple(self._living)

    @asynccontextmanager
    async def acquire(
        self, *, alone: bool = False, memory_limit: int | None = None
    ) -> AsyncIterator[ChildProcess]:
        """Lend a child process for one run. After the run the process is kept or replaced.

        Args:
            alone: Use a new process, and replace it after the run.
            memory_limit: Bytes for this run, if its task function sets a limit.

        Raises:
            NoChildAvailable: No child process can be started.
        """
        self._waiting_count += 1
        try:
            child = await self._start_limited() if alone else self._pop_idle() or await self._wait_for_child()
        finally:
            self._waiting_count -= 1
            self._on_available()
        self._living[child] = memory_limit
        try:
            yield child
        finally:
            self._release(child, alone=alone)

    async def close(self) -> None:
        """End every child process and all processes that they started."""
        jobs = [*self._start_tasks, *filter(None, (self._memory_watch, self._restart_task))]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.gather(*(child.close() for child in self._living), *self._closing)
        self._living.clear()
        self._idle.clear()

    async def _wait_for_child(self) -> ChildProcess:
        """Return the next child process that is released or started."""
        waiter: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if sum(not start.done() for start in self._start_tasks) < len(self._waiters):
            start = asyncio.create_task(self._start_for_first_waiter(), name="tidegate child start")
            self._start_tasks.add(start)
            start.add_done_callback(self._start_tasks.discard)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._hand_over(waiter.result())
            raise

    async def _start_for_first_waiter(self) -> None:
        """Start a child process for the first waiting run; do nothing if no run waits any more."""
        async with self._start_semaphore:
            if self._first_waiter() is None:
                return
            try:
                child = await self._start()
            except Exception as error:  # the waiting run must get any error
                if (waiter := self._first_waiter()) is not None:
                    self._waiters.popleft()
                    waiter.set_exception(error)
            else:
                self._hand_over(child)

    def _first_waiter(self) -> asyncio.Future[ChildProcess] | None:
        """Return the future of the first run that is still waiting."""
        while self._waiters and self._waiters[0].done():
            self._waiters.popleft()
        return self._waiters[0] if self._waiters else None

    def _hand_over(self, child: ChildProcess) -> None:
        """Give a child process to the first waiting run, or keep it idle."""
        if (waiter := self._first_waiter()) is None:
            self._idle.append(child)
        else:
            self._waiters.popleft()
            waiter.set_result(child)

    async def _start_limited(self) -> ChildProcess:
        async with self._start_semaphore:
            return await self._start()

    def _pop_idle(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._close_child(child)
        return None

    async def _start(self) -> ChildProcess:
        gpus = self._rules.gpus
        child = ChildProcess(
            self._application,
            gpu=self._least_used_gpu() if gpus else None,
            snapshot=self._snapshot,
        )
        self._living[child] = None
        if self._memory_watch is None:
            self._memory_watch = asyncio.create_task(self._watch_memory(), name="tidegate child memory")
        try:
            await child.start()
        except (ChildDied, OSError) as error:
            self._close_child(child)
            self._on_start_failure(f"no child process can be started: {error}")
            raise NoChildAvailable(self.start_error) from error
        except BaseException:
            self._close_child(child)
            raise
        if self.start_error:
            log.warning("child processes can be started again")
            self.start_error = ""
            self._on_available()
        return child

    def _on_start_failure(self, why: str) -> None:
        """Stop claiming tasks for child processes until one can be started again."""
        self.start_error = why
        if self._restart_task is None or self._restart_task.done():
            log.error("%s; no task is claimed for child processes until one can be started", why)
            self._restart_task = asyncio.create_task(
                self._restart_until_started(), name="tidegate child restart"
            )

    async def _restart_until_started(self) -> None:
        pause = BackoffDelay(random.Random(), first=FIRST_RESTART_SECONDS, cap=30.0)
        while self.start_error:
            await asyncio.sleep(pause.next())
            with contextlib.suppress(NoChildAvailable):
                self._hand_over(await self._start_limited())

    def _release(self, child: ChildProcess, *, alone: bool) -> None:
        self._living[child] = None
        reason = self._replacement_reason(child, alone=alone)
        if not reason:
            self._hand_over(child)
            return
        if child.is_alive:
            log.info("child process %d is replaced: %s", child.pid, reason)
        self._close_child(child)

    def _replacement_reason(self, child: ChildProcess, *, alone: bool) -> str:
        if not child.is_alive:
            return "it is dead"
        if child.unhealthy_reason:
            return child.unhealthy_reason
        if alone:
            return "it ran a task suspected of crashes"
        if child.runs >= self._rules.max_runs:
            return f"it has run {child.runs} tasks"
        soft = self._rules.soft_bytes
        if soft is not None and (held := child.excess(soft)) is not None:
            return f"it holds {held >> 20} MiB, more than {soft >> 20}"
        vram = self._rules.vram
        if vram is not None and (held := vram.excess(child.pid)) is not None:
            return f"it holds {held >> 20} MiB of GPU memory"
        return ""

    def _close_child(self, child: ChildProcess) -> None:
        self._living.pop(child, None)
        ending = asyncio.create_task(child.close(), name=f"tidegate end of child {child.pid}")
        self._closing.add(ending)
        ending.add_done_callback(self._closing.discard)

    def _least_used_gpu(self) -> int | str:
        used = [child.gpu for child in self._living]
        return min(self._rules.gpus, key=used.count)

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(MEMORY_CHECK_SECONDS)
            for child, own_limit in list(self._living.items()):
                limits = [limit for limit in (own_limit, self._rules.hard_bytes) if limit is not None]
                if limits and child.is_alive and child.excess(min(limits)) is not None:
                    await self._kill_if_still_over(child, min(limits))

    async def _kill_if_still_over(self, child: ChildProcess, limit: int) -> None:
        """Check again before the kill: the memory of a new process counts twice for a moment."""
        runs = child.runs
        await asyncio.sleep(CONFIRM_SECONDS)
        if child.is_alive and child.runs == runs and (held := child.excess(limit)) is not None:
            child.kill(f"memory limit {limit >> 20} MiB passed: {held >> 20} MiB in use")


__all__ = ["ChildDied", "ChildPool", "ChildProcess", "ChildRules", "NoChildAvailable"]
