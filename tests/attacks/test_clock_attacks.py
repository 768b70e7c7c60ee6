"""The reaper with clocks that jump, sleep or disagree: it retires dead workers only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.domain.outcome import Fence, FinishStatus, Succeeded
from tidegate.domain.spec import Priority
from tidegate.store.rows import ClaimRequest, CrashPolicy, NewTask
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.maintenance.reaper import Reaper

pytestmark = pytest.mark.anyio
LEASE, BEAT, REAP = 30.0, 10.0, 5.0
START = 1_800_000_000.0


class Clock:
    """A clock that the test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class World:
    """One worker that sends heartbeats, one reaper, and their clocks."""

    def __init__(self, path: Path, *, behind: float = 0.0) -> None:
        self.steady = Clock(1000.0)
        self.wall = Clock(START)
        self.workers_wall = Clock(START - behind)
        self.store = SqliteStore(path, clock=self.wall)
        self.workers_store = SqliteStore(path, clock=self.workers_wall)
        self.reaper = Reaper(self.store, interval=REAP, clock=self.steady)

    async def run_one(self) -> Fence:
        await self.workers_store.add_worker(
            NewWorker("w", "w", "default", "here", 1, ("*",), 10, lease_seconds=LEASE)
        )
        task = NewTask("01900000-0000-7000-8000-000000000001", "f", "q", Priority.NORMAL, b"{}", "json")
        await self.workers_store.enqueue([task])
        claim = await self.workers_store.claim(ClaimRequest("w", 10, ("*",), {"f": CrashPolicy()}))
        return claim.tasks[0].fence

    async def live(self, seconds: float, *, beating: bool = True) -> None:
        """Let time pass in steps of a second while the worker and the reaper do their work."""
        for second in range(round(seconds)):
            for clock in (self.steady, self.wall, self.workers_wall):
                clock.now += 1.0
            if beating and second % BEAT == BEAT - 1:
                await self.workers_store.extend_leases(["w"], LEASE)
            if second % REAP == REAP - 1:
                await self.reaper.run_once()

    async def close(self) -> None:
        await self.store.close()
        await self.workers_store.close()


async def test_a_clock_set_forward_retires_no_worker_that_sends_heartbeats(tmp_path: Path) -> None:
    world = World(tmp_path / "queue.db")
    fence = await world.run_one()
    await world.live(2 * LEASE + 3)
    for clock in (world.wall, world.workers_wall):
        clock.now += 3600.0
    await world.live(2 * LEASE)
    assert await world.store.finish([Succeeded(fence, b"1", "json")]) == [FinishStatus.DONE]
    await world.close()


async def test_a_worker_whose_clock_is_behind_keeps_its_lease_while_it_sends_heartbeats(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "queue.db", behind=3600.0)
    fence = await world.run_one()
    await world.live(4 * LEASE)
    assert await world.store.finish([Succeeded(fence, b"1", "json")]) == [FinishStatus.DONE]
    await world.close()


async def test_a_dead_worker_whose_lease_ends_far_in_the_future_is_retired_after_its_silence(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "queue.db", behind=-3600.0)
    fence = await world.run_one()
    await world.live(LEASE, beating=True)
    await world.live(LEASE + 4 * REAP, beating=False)
    assert await world.store.finish([Succeeded(fence, b"1", "json")]) == [FinishStatus.FENCED]
    await world.close()


async def test_after_a_host_slept_workers_can_send_a_heartbeat_first(tmp_path: Path) -> None:
    world = World(tmp_path / "queue.db")
    fence = await world.run_one()
    await world.live(2 * LEASE + 1)
    for clock in (world.wall, world.workers_wall):  # a sleeping host's monotonic clock stands still
        clock.now += 8 * 3600.0
    await world.reaper.run_once()
    await world.live(2 * LEASE)
    assert await world.store.finish([Succeeded(fence, b"1", "json")]) == [FinishStatus.DONE]
    await world.close()


async def test_a_dead_worker_is_found_within_its_lease_and_two_passes(tmp_path: Path) -> None:
    world = World(tmp_path / "queue.db")
    fence = await world.run_one()
    await world.live(3 * LEASE)
    await world.workers_store.extend_leases(["w"], LEASE)
    await world.live(LEASE + 2 * REAP, beating=False)
    assert await world.store.finish([Succeeded(fence, b"1", "json")]) == [FinishStatus.FENCED]
    await world.close()
