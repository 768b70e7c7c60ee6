"""What hits everyone alike: the store goes away, or everything is frozen, while many tasks run.

Nothing else goes wrong then, so whatever is run again afterwards was run again because of it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping

from chaos import bodies, processes
from chaos.client import Client
from chaos.faults import Hush, Kind
from chaos.houses import House
from chaos.plan import RUNNING, START_SECONDS
from chaos.scene import Scene
from tidegate import State
from tidegate.domain.outcome import Fence
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter

_LOOK_SECONDS = 0.05
_CALM_SECONDS = 60.0
"""For everyone to be well again beforehand."""


class Everyone:
    """Hits everyone at once.

    Args:
        scene: Whom.
        store: As an onlooker sees it.
        flood: Enqueues the tasks that must be running.
        env: For processes that take part in it.
        house: Where the store is.
    """

    def __init__(
        self, scene: Scene, *, store: Store, flood: Client, env: Mapping[str, str], house: House
    ) -> None:
        self._scene = scene
        self._plan = scene.plan
        self._journal = scene.journal
        self._store = store
        self._flood = flood
        self._env = env
        self._house = house
        self._ways = scene.rng.sample(house.ways, len(house.ways))

    async def hit(self, kind: Kind) -> None:
        """Wait until all are well and many tasks run, do it, and wait until its consequences would show."""
        if not await self._all_are_well():
            return
        await self._flood_slots()
        running = await self._running()
        fault = self._journal.began(
            kind, "", what=f"for {self._plan.outage_seconds:.1f} s, {len(running)} tasks run"
        )
        hush = Hush(fault, running)
        self._journal.hushes.append(hush)
        self._scene.tell(str(fault))
        if kind is Kind.OUTAGE:
            way = self._ways[self._journal.count()[Kind.OUTAGE] % len(self._ways)]
            fault.what = f"{way} {fault.what}"
            await self._take_store_away(way)
        else:
            await self._freeze()
        fault.ended_at = time.time()
        hush.finished_after = await self._first_finish(running)
        await asyncio.sleep(self._plan.quiet_seconds)
        hush.quiet_until = time.time()
        self._scene.tell(f"{kind} is over")

    async def _take_store_away(self, way: str) -> None:
        async with self._house.away(way, self._env):
            if way != "moved":  # a client that starts then would make a new store in its place
                self._scene.kill_client(self._scene.rng.choice(self._scene.clients))
            await asyncio.sleep(self._plan.outage_seconds)

    async def _freeze(self) -> None:
        processes.stop_all(*self._scene.run, signal.SIGSTOP)
        await asyncio.sleep(self._plan.outage_seconds)
        processes.stop_all(*self._scene.run, signal.SIGCONT)

    async def _all_are_well(self) -> bool:
        """Wait until every host has a ready worker, and the store knows of no other."""

        async def are_well() -> bool:
            if not all(host.pools() for host in self._scene.workers):
                return False
            living = {pid for host in self._scene.workers for pid in host.pools()}
            return {row.pid for row in await self._store.workers()} == living

        if await _until(are_well, _CALM_SECONDS):
            return True
        self._journal.problems.append(
            f"not all workers were well within {_CALM_SECONDS:.0f} s without faults"
        )
        return False

    async def _flood_slots(self) -> None:
        """Have enough long bodies running."""
        lease, rng = self._plan.lease, self._scene.rng
        longest = self._plan.outage_seconds + 2.0 * lease
        tasks = [
            bodies.nap.using(priority="interactive")
            .prepare(number, rng.uniform(0.75 * longest, longest))
            .new_task
            for number in range(int(1.15 * RUNNING))
        ]
        await self._flood.submit(tasks, many=True)

        async def enough() -> bool:
            return len(await self._running()) >= RUNNING

        if not await _until(enough, START_SECONDS):
            self._journal.problems.append(f"{RUNNING} tasks did not run within {START_SECONDS:.0f} s")

    async def _running(self) -> frozenset[Fence]:
        rows = await self._store.list_tasks(TaskFilter(states=(State.RUNNING,)), limit=500)
        return frozenset(Fence(row.id, row.run) for row in rows)

    async def _first_finish(self, running: frozenset[Fence]) -> float | None:
        """Return the seconds until one of those that ran is finished."""
        began_at = time.monotonic()

        async def one_is_finished() -> bool:
            return not running <= await self._running()

        return time.monotonic() - began_at if await _until(one_is_finished, self._plan.claim_bound) else None


async def _until(truth: Callable[[], Awaitable[bool]], within: float) -> bool:
    """Ask until it is true; return whether it became so in time."""
    ends_at = time.monotonic() + within
    while not await truth():
        if time.monotonic() > ends_at:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True
