"""Watches how much memory pool processes hold: over the soft limit one is replaced, over the hard one killed.

What counts is the process and what its own tasks started. Its child slots have the same limits each, kept
by the pool process itself, and do not count here; nor does what a task started in a session of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from tidegate.worker.children import process_tree
from tidegate.worker.settings import Pool

log = logging.getLogger("tidegate.supervisor")

LOOK_SECONDS = 0.25
CONFIRM_SECONDS = 0.03
"""A second look after this time decides: what was just started may count twice for a moment."""

Measure = Callable[[int, int], int | None]
"""Returns what a process holds if that is more than a number of bytes."""


class MemoryLimited(Protocol):
    """A pool process as it is seen from here."""

    pool: Pool
    is_over_memory: bool
    """Set when it has to leave for its memory."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it has begun to work."""
        ...

    @property
    def drain_reason(self) -> str:
        """Why it takes no more tasks; empty if it does."""
        ...

    def drain(self, grace: float, why: str) -> None:
        """Let it end after its present tasks."""

    def kill(self, why: str) -> None:
        """Kill it."""


def _of_a_pool_process(pid: int, limit: int) -> int | None:
    return process_tree.excess(pid, limit, other_sessions=False)


class MemoryWatch:
    """Looks at every process that has a limit, again and again.

    Args:
        living: Returns the pool processes.
        grace: Seconds the tasks of a process over its soft limit may go on; then they are given back.
        measure: How memory is read.
    """

    def __init__(
        self,
        living: Callable[[], Iterable[MemoryLimited]],
        *,
        grace: Callable[[], float],
        measure: Measure = _of_a_pool_process,
    ) -> None:
        self._living = living
        self._grace = grace
        self._measure = measure

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for process in list(self._living()):
                await self.check(process)

    async def check(self, process: MemoryLimited) -> None:
        """Look at one process and do what its memory asks for."""
        if not process.is_ready:  # once the application is imported, the process itself looks and says so
            return
        hard, soft = process.pool.memory_limit, process.pool.memory_soft_limit
        if hard is not None and (held := await self._surely_over(process, hard)) is not None:
            why = f"memory limit {hard >> 20} MiB passed: {held >> 20} MiB in use"
            log.error("pool %s: process %d is killed: %s", process.pool.name, process.pid, why)
            process.kill(why)
        elif soft is not None and not process.drain_reason:
            held = await self._surely_over(process, soft)
            if held is not None:
                process.is_over_memory = True
                process.drain(self._grace(), f"it holds {held >> 20} MiB, more than {soft >> 20}")

    async def _surely_over(self, process: MemoryLimited, limit: int) -> int | None:
        if self._measure(process.pid, limit) is None:
            return None
        await asyncio.sleep(CONFIRM_SECONDS)
        return self._measure(process.pid, limit) if process.pid else None
