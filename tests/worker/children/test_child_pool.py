"""Child processes lent to runs while others start: no run waits for a start if one is idle."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.worker.children.pool import (
    WAITERS_PER_START,
    ChildPool,
    ChildProcess,
    ChildRules,
    NoChildAvailable,
)

pytestmark = pytest.mark.anyio


class Starts:
    """Replaces the start of processes: each start waits until the test lets it continue."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Semaphore(0)

    async def start(self, child: ChildProcess) -> None:
        self.begun += 1
        await self.go.acquire()


@pytest.fixture
async def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Starts that the test continues, one at a time as on two cores."""
    made = Starts()
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(ChildProcess, "start", lambda child: made.start(child))
    monkeypatch.setattr(ChildProcess, "is_alive", True)
    return made


async def test_a_waiting_task_takes_a_child_that_became_idle(starts: Starts) -> None:
    pool = ChildPool("nothing:app", ChildRules())
    may_end = asyncio.Event()
    acquired: list[ChildProcess] = []

    async def acquire_one() -> None:
        async with pool.acquire() as child:
            acquired.append(child)
            if len(acquired) == 1:
                return  # the first run ends at once
            await may_end.wait()

    acquirers = [asyncio.create_task(acquire_one()) for _ in range(3)]
    await asyncio.sleep(0)
    starts.go.release()
    while len(acquired) < 2:
        await asyncio.sleep(0)
    assert acquired[0] is acquired[1]
    assert starts.begun <= 2
    starts.go.release()
    may_end.set()
    await asyncio.gather(*acquirers)
    await pool.close()


async def test_the_child_pool_is_available_only_for_children_that_are_soon_ready(starts: Starts) -> None:
    reported = 0

    def on_available() -> None:
        nonlocal reported
        reported += 1

    pool = ChildPool("nothing:app", ChildRules(), on_available)
    assert pool.available == WAITERS_PER_START
    may_end = asyncio.Event()

    async def acquire_one() -> None:
        async with pool.acquire():
            await may_end.wait()

    acquirers = [asyncio.create_task(acquire_one()) for _ in range(WAITERS_PER_START)]
    await asyncio.sleep(0)
    assert pool.available == 0
    starts.go.release()
    while not reported:
        await asyncio.sleep(0)
    assert pool.available == 1
    starts.go.release()
    may_end.set()
    await asyncio.gather(*acquirers)
    assert pool.available == WAITERS_PER_START + len(pool.processes)
    await pool.close()


async def test_a_child_that_cannot_start_fails_the_first_waiting_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(self: ChildProcess) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(ChildProcess, "start", start)
    pool = ChildPool("nothing:app", ChildRules())
    for _ in range(2):
        with pytest.raises(NoChildAvailable, match="no more processes"):
            async with pool.acquire():
                pass
    await pool.close()


async def test_a_cancelled_waiter_leaves_its_child_to_the_next(starts: Starts) -> None:
    pool = ChildPool("nothing:app", ChildRules())

    async def acquire_one() -> ChildProcess:
        async with pool.acquire() as child:
            return child

    gone, patient = asyncio.create_task(acquire_one()), asyncio.create_task(acquire_one())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    starts.go.release()
    assert isinstance(await patient, ChildProcess)
    await pool.close()
