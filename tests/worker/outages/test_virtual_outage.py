"""Outages of an hour and tasks that always fail, with the real engine and store on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from support import app_on
from tidegate import Exponential, Fixed, Pool, State, Timings
from tidegate.domain.ids import IdMaker
from tidegate.domain.spec import Backoff
from tidegate.domain.states import FINAL
from tidegate.internals import core_of
from tidegate.policy.charge import UNCHARGED_LIMIT
from tidegate.store.rows import TaskRow
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.virtual_time import VirtualLoop, run_virtually
from tidegate.worker.embedded import EmbeddedWorker

HOUR = 3_600.0
EXPONENTIAL = Exponential()


class World:
    """A provider and ten tasks that call it from the first second."""

    def __init__(
        self,
        directory: Path,
        status_at: Callable[[int, float], int],
        *,
        tasks: int = 10,
        backoff: Backoff = EXPONENTIAL,
    ) -> None:
        self.loop = VirtualLoop()
        path = directory / "queue.db"
        self.store = SqliteStore(path, runner=InlineRunner(path), clock=self.loop.wall)
        self.app = app_on(self.store, pools=[Pool(concurrency=4, poll_interval=1.0)], timings=Timings())
        rng = random.Random(7)
        core_of(self.app)._make_id = IdMaker(lambda: int(self.loop.wall() * 1000), rng.getrandbits)
        self.calls: list[tuple[float, int, int]] = []
        """Time, task and status of each call."""
        self._status_at = status_at
        self._tasks = tasks
        self._backoff = backoff

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        number = int(request.url.path[1:])
        await asyncio.sleep(0.5)
        status = self._status_at(number, self.loop.time())
        self.calls.append((self.loop.time(), number, status))
        return httpx2.Response(status, json={})

    async def _work(self) -> list[TaskRow]:
        upstream = self.app.upstream("provider")
        transport = upstream.transport(httpx2.MockTransport(self._answer))
        async with httpx2.AsyncClient(transport=transport) as client:

            @self.app.task(name="t", upstream=upstream, backoff=self._backoff)
            async def body(number: int) -> None:
                (await client.post(f"http://provider/{number}", json={})).raise_for_status()

            worker = EmbeddedWorker(
                core_of(self.app),
                core_of(self.app).pools,
                core_of(self.app).timings,
                rng=random.Random(3),
                threaded=False,
            )
            async with worker:
                ids = [(await body.enqueue(number)).id for number in range(self._tasks)]
                while not all(row.state in FINAL for row in (await self.store.read_tasks(ids)).values()):
                    await asyncio.sleep(10)
                rows = await self.store.read_tasks(ids)
        return [rows[task_id] for task_id in ids]

    def run(self) -> list[TaskRow]:
        """Run until every task is final; return their rows in order."""
        try:
            return run_virtually(self._work(), self.loop)
        finally:
            run_virtually(self.store.close(), VirtualLoop())

    def calls_of(self, number: int) -> int:
        return sum(task == number for _, task, _ in self.calls)


def test_an_hour_of_503_kills_no_waiting_task_and_all_succeed_after_it(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _, at: 503 if at < HOUR else 200)
    rows = world.run()
    assert {row.state for row in rows} == {State.SUCCEEDED}
    assert max(row.counters.parks for row in rows) <= UNCHARGED_LIMIT
    assert sum(row.counters.attempts for row in rows) == 0
    assert world.loop.time() < HOUR + 900
    during = [at for at, *_ in world.calls if at < HOUR]
    assert len(during) <= 10 * UNCHARGED_LIMIT


@pytest.mark.slow
def test_a_single_task_survives_an_hour_of_503(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _, at: 503 if at < HOUR else 200, tasks=1)
    (row,) = world.run()
    assert (row.state, row.counters.attempts) == (State.SUCCEEDED, 0)


def test_if_all_tasks_wait_for_their_last_attempt_only_a_few_try_the_upstream(tmp_path: Path) -> None:
    world = World(tmp_path, lambda _, at: 500 if at < 1_200 else 200)
    rows = world.run()
    dead = [row for row in rows if row.state is State.DEAD]
    assert len(dead) <= 6, "a last attempt tries only where nobody else can, and seldom"
    assert all(world.calls_of(number) <= 3 for number in range(10))


@pytest.mark.parametrize(("status", "most"), [(500, 3), (529, UNCHARGED_LIMIT + 3)])
@pytest.mark.parametrize("poisoned", [1, 2])
def test_tasks_that_always_fail_die_by_their_own_attempts_among_healthy_ones(
    tmp_path: Path, status: int, most: int, poisoned: int
) -> None:
    world = World(
        tmp_path, lambda number, _: status if number < poisoned else 200, tasks=40, backoff=Fixed(10)
    )
    rows = world.run()
    assert [row.state for row in rows] == [State.DEAD] * poisoned + [State.SUCCEEDED] * (40 - poisoned)
    assert all(world.calls_of(number) <= most for number in range(poisoned))
    assert all(world.calls_of(number) == 1 for number in range(poisoned, 40))
    healthy = max(at for at, number, _ in world.calls if number >= poisoned)
    assert healthy < 40 / 4 * 0.5 + 10, "they wait for single probes at the start, and no longer"
