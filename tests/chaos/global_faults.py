"""Faults that hit everyone: the store is unreachable, or every process is frozen, while many tasks run.

No other fault is injected at that time, so each re-run after it was caused by it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from chaos import functions, processes
from chaos.client import ChaosClient
from chaos.faults import ChaosFaultKind, GlobalFault
from chaos.plan import RUNNING, START_SECONDS
from chaos.setup import ChaosSetup
from chaos.store_backends import StoreBackend
from tidegate import State
from tidegate.domain.outcome import Fence
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter

_POLL_SECONDS = 0.05
_RECOVERY_SECONDS = 60.0
"""The longest time until all workers are ready before such a fault."""


@dataclass(eq=False)
class GlobalFaultInjector:
    """Injects the faults that hit everyone."""

    setup: ChaosSetup
    """The hosts and processes to hit."""
    store: Store
    """A store that only observes."""
    filler_client: ChaosClient
    """Enqueues the tasks that must be running."""
    env: Mapping[str, str]
    """The environment of helper processes."""
    store_backend: StoreBackend

    def __post_init__(self) -> None:
        self._plan, self._fault_log = self.setup.plan, self.setup.fault_log
        kinds = self.store_backend.outage_kinds
        self._outage_kinds = self.setup.rng.sample(kinds, len(kinds))

    async def inject(self, kind: ChaosFaultKind) -> None:
        """Wait until all are well and many tasks run, do it, and wait until its consequences would show."""
        if not await self._all_workers_ready():
            return
        await self._fill_workers()
        running = await self._running()
        fault = self._fault_log.record_start(
            kind, "", what=f"for {self._plan.outage_seconds:.1f} s, {len(running)} tasks run"
        )
        global_fault = GlobalFault(fault, running)
        self._fault_log.global_faults.append(global_fault)
        self.setup.log(str(fault))
        if kind is ChaosFaultKind.OUTAGE:
            outage_kind = self._outage_kinds[
                self._fault_log.count()[ChaosFaultKind.OUTAGE] % len(self._outage_kinds)
            ]
            fault.what = f"{outage_kind} {fault.what}"
            await self._make_store_unavailable(outage_kind)
        else:
            await self._freeze()
        fault.ended_at = time.time()
        global_fault.finished_after = await self._first_finish(running)
        await asyncio.sleep(self._plan.observation_seconds)
        global_fault.observed_until = time.time()
        self.setup.log(f"{kind} is over")

    async def _make_store_unavailable(self, outage_kind: str) -> None:
        async with self.store_backend.make_unavailable(outage_kind, self.env):
            if outage_kind != "moved":  # a client that starts then would make a new store in its place
                self.setup.kill_client(self.setup.rng.choice(self.setup.clients))
            await asyncio.sleep(self._plan.outage_seconds)

    async def _freeze(self) -> None:
        processes.stop_all(*self.setup.run, signal.SIGSTOP)
        await asyncio.sleep(self._plan.outage_seconds)
        processes.stop_all(*self.setup.run, signal.SIGCONT)

    async def _all_workers_ready(self) -> bool:
        """Wait until every host has a ready worker, and the store knows of no other."""

        async def are_ready() -> bool:
            if not all(host.pools() for host in self.setup.workers):
                return False
            living = {pid for host in self.setup.workers for pid in host.pools()}
            return {row.pid for row in await self.store.list_workers()} == living

        if await _until(are_ready, _RECOVERY_SECONDS):
            return True
        self._fault_log.record_problem(
            f"not all workers were well within {_RECOVERY_SECONDS:.0f} s without faults"
        )
        return False

    async def _fill_workers(self) -> None:
        """Make sure that enough long tasks are running."""
        lease, rng = self._plan.lease, self.setup.rng
        longest = self._plan.outage_seconds + 2.0 * lease
        tasks = [
            functions.steady.using(priority="interactive")
            .prepare(number, [f"ok {rng.uniform(0.75 * longest, longest):.3f}"])
            .new_task
            for number in range(int(1.15 * RUNNING))
        ]
        await self.filler_client.submit(tasks, many=True)

        async def is_enough() -> bool:
            return len(await self._running()) >= RUNNING

        if not await _until(is_enough, START_SECONDS):
            self._fault_log.record_problem(f"{RUNNING} tasks did not run within {START_SECONDS:.0f} s")

    async def _running(self) -> frozenset[Fence]:
        rows = await self.store.list_tasks(TaskFilter(states=(State.RUNNING,)), limit=500)
        return frozenset(Fence(row.id, row.run) for row in rows)

    async def _first_finish(self, running: frozenset[Fence]) -> float | None:
        """Return the seconds until one of those that ran is finished."""
        began_at = time.monotonic()

        async def one_is_finished() -> bool:
            return not running <= await self._running()

        return time.monotonic() - began_at if await _until(one_is_finished, self._plan.claim_bound) else None


async def _until(condition: Callable[[], Awaitable[bool]], within: float) -> bool:
    """Ask until it is true; return whether it became so in time."""
    ends_at = time.monotonic() + within
    while not await condition():
        if time.monotonic() > ends_at:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
