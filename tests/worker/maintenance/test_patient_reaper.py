"""The reaper's patience: workers that could not send heartbeats are not retired."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from support import until
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.worker_rows import NewWorker
from tidegate.worker import scratch
from tidegate.worker.maintenance.reaper import Reaper

pytestmark = pytest.mark.anyio

LEASE, INTERVAL = 1.0, 0.2


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A reaper and a worker on one file, each with its own store, as in two processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.workers_store = SqliteStore(path, clock=self.clock)
        self.reapers_store = SqliteStore(path, clock=self.clock)
        self.reaper = Reaper(
            self.reapers_store,
            interval=INTERVAL,
            lease=LEASE,
            clock=self.clock,
            on_retired=scratch.remove_for_lost_worker,
        )

    async def add_worker(self, worker_id: str, host: str = "somewhere") -> None:
        await self.workers_store.add_worker(
            NewWorker(worker_id, "w", "default", host, pid=1, queues=("*",), slots=1, lease_seconds=LEASE)
        )

    async def is_alive(self, worker_id: str) -> bool:
        """Send a heartbeat as the worker's supervisor does; return whether the store accepts it."""
        return not await self.workers_store.extend_leases([worker_id], LEASE)

    async def passes(self, seconds: float, *, beating: str = "") -> None:
        """Let the reaper make passes for this long while a worker sends heartbeats."""
        for _ in range(round(seconds / INTERVAL)):
            self.clock.now += INTERVAL
            if beating:
                assert await self.is_alive(beating)
            await self.reaper.run_once()


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    made = Scene(tmp_path / "queue.db")
    await made.reapers_store.migrate()
    yield made
    await made.workers_store.close()
    await made.reapers_store.close()


async def test_a_write_lock_held_for_two_leases_retires_no_living_worker(scene: Scene) -> None:
    await scene.add_worker("living")
    await scene.passes(3 * LEASE, beating="living")
    backup = apsw.Connection(str(scene.path))
    backup.execute("BEGIN IMMEDIATE")
    is_over = asyncio.Event()

    async def pass_until_it_is_over() -> None:
        while not is_over.is_set():
            scene.clock.now += INTERVAL
            await scene.reaper.run_once()

    passing = asyncio.create_task(pass_until_it_is_over())
    await until(lambda: _waits_for_the_lock(scene.path), what="the reaper waits for the lock")
    scene.clock.now += 2 * LEASE
    is_over.set()
    backup.execute("ROLLBACK")
    backup.close()
    await passing
    assert await scene.is_alive("living")


async def test_a_worker_that_is_dead_is_retired_one_lease_after_such_a_lock(scene: Scene) -> None:
    await scene.add_worker("dead")
    await scene.passes(3 * LEASE, beating="dead")
    scene.clock.now += 2 * LEASE  # a pass that waited this long restarts the reaper's patience
    await scene.passes(0.8 * LEASE)
    assert [worker.id for worker in await scene.workers_store.list_workers()] == ["dead"]
    await scene.passes(0.8 * LEASE)
    assert not await scene.is_alive("dead")


async def test_the_log_names_a_retired_worker_and_the_moment_its_lease_ran_out(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await scene.add_worker("dead", host="tide")
    await scene.passes(3 * LEASE)
    (line,) = [record.getMessage() for record in caplog.records if "its tasks are requeued" in record.message]
    assert line.startswith("worker w (tide:1) did not renew its lease, which ran out at 1970-01-01T00:16:41")


class Fleet:
    """Reapers that each live for less than a lease, one after the other."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def live(self, leases: float, *, beating: str = "", lives: int = 1) -> None:
        for _ in range(lives):
            self.scene.reaper = Reaper(
                self.scene.reapers_store, interval=INTERVAL, lease=LEASE, clock=self.scene.clock
            )
            await self.scene.passes(leases * LEASE, beating=beating)


async def test_reapers_that_live_shorter_than_a_lease_still_retire_only_dead_workers(
    scene: Scene,
) -> None:
    fleet = Fleet(scene)
    await scene.add_worker("dead")
    await scene.add_worker("living")
    await fleet.live(0.4, lives=6, beating="living")
    assert [worker.id for worker in await scene.workers_store.list_workers()] == ["living"]
    assert await scene.is_alive("living")


@pytest.mark.parametrize("step", [3 * LEASE, -3 * LEASE])
async def test_after_an_outage_or_a_clock_jump_young_reapers_wait_for_a_lease_too(
    scene: Scene, step: float
) -> None:
    fleet = Fleet(scene)
    await scene.add_worker("kept from beating")
    await fleet.live(0.4, lives=3, beating="kept from beating")
    scene.clock.now += step  # no writes were possible, so no reaper made a pass
    await fleet.live(0.4, lives=2)
    assert await scene.is_alive("kept from beating")


async def test_a_young_reaper_judges_a_worker_whose_row_changed_by_its_own_clock_only(
    scene: Scene,
) -> None:
    fleet = Fleet(scene)
    await scene.add_worker("old")
    await fleet.live(0.4, lives=4, beating="old")
    await scene.add_worker("new")
    behind = apsw.Connection(str(scene.path))  # as a worker whose own clock was set back would write it
    behind.execute(
        "UPDATE worker SET heartbeat_at = heartbeat_at - 9, expires_at = expires_at - 9 WHERE id = 'new'"
    )
    behind.close()
    await scene.passes(0.4 * LEASE, beating="old")
    assert await scene.is_alive("new")


async def test_runs_of_a_worker_without_a_row_are_reaped_like_any_orphan(scene: Scene) -> None:
    await scene.add_worker("gone")
    other = apsw.Connection(str(scene.path))
    other.execute("DELETE FROM worker")
    other.execute(
        "INSERT INTO running (task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, "
        "started_at, crash_limit, crash_base_seconds, crash_max_seconds) "
        "VALUES (zeroblob(16), 1, 'gone', 'q', 1, '', 'f', '', 0, 0, 3, 1, 1)"
    )
    other.close()
    await scene.passes(INTERVAL)
    assert [worker.name for worker in await scene.workers_store.list_workers()] == ["its row was missing"]
    await scene.passes(2 * LEASE)
    assert await scene.workers_store.extend_leases(["gone"], LEASE) == {"gone"}, "retired"


async def test_scratch_of_a_lost_worker_is_removed_on_its_own_machine(
    scene: Scene,
) -> None:
    for worker_id, host in (("here", socket.gethostname()), ("there", "elsewhere")):
        await scene.add_worker(worker_id, host)
        (scratch.scratch_root(worker_id) / "run").mkdir(parents=True)
    await scene.passes(3 * LEASE)
    assert not scratch.scratch_root("here").exists()
    assert scratch.scratch_root("there").exists()


async def _waits_for_the_lock(path: Path) -> bool:
    """Return whether the first writer in the queue is blocked."""
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held_if_free() as is_free:
            return not is_free
    finally:
        lock.forget()
