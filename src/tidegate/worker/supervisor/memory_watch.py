"""Watches the memory of pool processes: replaces one over the soft limit, kills one over the hard limit.

The memory of a pool process includes the processes that its own tasks started. Child processes do not count:
each has the same limits, enforced by the pool process. Processes that a task started in another session do
not count either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from tidegate.worker.children import process_tree
from tidegate.worker.settings import Pool

log = logging.getLogger("tidegate.supervisor")

CHECK_SECONDS = 0.25
CONFIRM_SECONDS = 0.03
"""A second check after this time decides: the memory of a new process may count twice for a moment."""

Measure = Callable[[int, int], int | None]
"""A function of a process id and a limit in bytes. Returns the bytes in use if more than the limit, else
None."""


class MemoryLimited(Protocol):
    """The parts of a pool process that this module uses."""

    pool: Pool
    is_over_memory: bool
    """Whether the process is being replaced because of its memory."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the process has started to work."""
        ...

    @property
    def drain_reason(self) -> str:
        """Why the process takes no more tasks; empty if it takes tasks."""
        ...

    def drain(self, grace: float, why: str) -> None:
        """Let the process end after its current tasks."""

    def kill(self, why: str) -> None:
        """Kill the process."""


def _measure_pool_process(pid: int, limit: int) -> int | None:
    return process_tree.excess(pid, limit, other_sessions=False)


class MemoryWatch:
    """Checks the memory of every process that has a limit, again and again.

    Args:
        living: Returns the living pool processes.
        grace: Returns the seconds that tasks of a process over its soft limit may go on before their release.
        measure: Reads the memory.
    """

    def __init__(
        self,
        living: Callable[[], Iterable[MemoryLimited]],
        *,
        grace: Callable[[], float],
        measure: Measure = _measure_pool_process,
    ) -> None:
        self._living = living
        self._grace = grace
        self._measure = measure

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for process in list(self._living()):
                await self.check(process)

    async def check(self, process: MemoryLimited) -> None:
        """Check one process; replace or kill it if it uses too much."""
        if not process.is_ready:  # until it is ready, the process checks its limits itself
            return
        hard, soft = process.pool.memory_limit, process.pool.memory_soft_limit
        if hard is not None and (held := await self._confirmed_excess(process, hard)) is not None:
            reason = f"memory limit {hard >> 20} MiB passed: {held >> 20} MiB in use"
            log.error("pool %s: process %d is killed: %s", process.pool.name, process.pid, reason)
            process.kill(reason)
        elif soft is not None and not process.drain_reason:
            held = await self._confirmed_excess(process, soft)
            if held is not None:
                process.is_over_memory = True
                process.drain(self._grace(), f"it holds {held >> 20} MiB, more than {soft >> 20}")

    async def _confirmed_excess(self, process: MemoryLimited, limit: int) -> int | None:
        if self._measure(process.pid, limit) is None:
            return None
        await asyncio.sleep(CONFIRM_SECONDS)
        return self._measure(process.pid, limit) if process.pid else None
