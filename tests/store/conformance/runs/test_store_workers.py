"""Workers: each has one lease, and its runs become orphans when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, retrying, succeeded

from tidegate.domain.outcome import Charge, Counters, Released
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import NewWorker, WorkerRow


@pytest.mark.parametrize(("may_grow_to", "most_slots"), [(None, 7), (200, 200)])
async def test_a_worker_is_listed_as_it_was_registered(
    build: Build, may_grow_to: int | None, most_slots: int
) -> None:
    worker = NewWorker(
        "id-1", "näme\x01", "pool", "host", 42, ("a", "b\x01", ""), 7, lease_seconds=30.0, version="1.2",
        most_slots=may_grow_to,
    )  # fmt: skip
    await build.store.add_worker(worker)
    assert await build.store.list_workers() == [
        WorkerRow(
            "id-1", "näme\x01", "pool", "host", 42, ("a", "b\x01", ""), 7, START, START, START + 30, None, 0, "1.2",
            most_slots=most_slots,
        )
    ]  # fmt: skip


async def test_registering_twice_changes_nothing(build: Build, clock: SettableClock) -> None:
    worker = await build.worker(id="w", lease=30.0)
    clock.advance(10)
    assert await build.worker(id="w", lease=99.0) == worker
    assert [row.expires_at for row in await build.store.list_workers()] == [START + 30]


async def test_a_heartbeat_extends_the_lease_from_now(build: Build, clock: SettableClock) -> None:
    one, other = await build.worker(), await build.worker()
    clock.advance(20)
    assert await build.store.extend_leases([one], 30.0) == set()
    leases = {row.id: (row.heartbeat_at, row.expires_at) for row in await build.store.list_workers()}
    assert leases == {one: (START + 20, START + 50), other: (START, START + 30)}


async def test_a_heartbeat_returns_retired_and_unknown_workers(build: Build) -> None:
    alive, retired = await build.worker(), await build.worker()
    await build.store.retire_worker(retired, why="gone", is_loss=False, only_if_expired=False)
    assert await build.store.extend_leases([alive, retired, "nobody"], 30.0) == {retired, "nobody"}
    assert await build.store.extend_leases([], 30.0) == set()


async def test_a_late_heartbeat_extends_an_expired_lease_of_a_worker_not_yet_retired(
    build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=30.0)
    clock.advance(100)
    assert await build.store.extend_leases([worker], 30.0) == set()
    assert not await build.store.retire_worker(worker, why="late", is_loss=True, only_if_expired=True)


async def test_a_worker_with_a_valid_lease_is_not_retired_as_expired(
    build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=30.0)
    clock.advance(29.9)
    assert not await build.store.retire_worker(
        worker, why="lease ran out", is_loss=True, only_if_expired=True
    )
    clock.advance(0.1)
    assert await build.store.retire_worker(worker, why="lease ran out", is_loss=True, only_if_expired=True)
    assert await build.store.list_workers() == []


async def test_retiring_twice_keeps_the_first_reason(build: Build) -> None:
    [task] = await build.orphaned(loss=False)
    [orphan] = await build.store.list_orphans()
    assert await build.store.retire_worker(orphan.worker_id, why="again", is_loss=True, only_if_expired=False)
    assert await build.store.retire_worker(orphan.worker_id, why="again", is_loss=True, only_if_expired=True)
    assert await build.store.list_orphans() == [orphan]
    assert orphan.fence == task.fence


async def test_an_unknown_worker_counts_as_retired(store: Store) -> None:
    assert await store.retire_worker("nobody", why="", is_loss=True, only_if_expired=True)


async def test_a_retired_worker_is_listed_while_it_has_runs(build: Build) -> None:
    [task] = await build.orphaned()
    [row] = await build.store.list_workers()
    assert (row.retired_at, row.running) == (START, 1)
    await build.done(succeeded(task.fence))
    assert await build.store.list_workers() == []


async def test_two_workers_with_one_name_are_independent(build: Build) -> None:
    old, new = await build.worker(name="w1"), await build.worker(name="w1")
    task = await build.run(worker=old)
    await build.run(worker=new)
    await build.store.retire_worker(old, why="killed by signal 9", is_loss=False, only_if_expired=False)
    assert [orphan.fence for orphan in await build.store.list_orphans()] == [task.fence]
    assert await build.store.extend_leases([new], 30.0) == set()


@pytest.mark.parametrize("loss", [True, False])
async def test_an_orphan_has_what_maintenance_needs(build: Build, clock: SettableClock, loss: bool) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    await build.done(retrying(task.fence, delay=0.0, charge=Charge.CRASH, rule="r"))
    clock.advance(1)
    await build.store.promote()
    [task] = await build.claim(worker, queues=("q",))
    await build.store.cancel([task.fence.task_id])
    await build.store.retire_worker(worker, why="killed by \ud800", is_loss=loss, only_if_expired=False)
    [orphan] = await build.store.list_orphans()
    assert orphan.fence == task.fence
    assert (orphan.worker_id, orphan.function, orphan.queue) == (worker, "app:work", "q")
    assert (orphan.started_at, orphan.is_loss, orphan.why) == (START + 1, loss, "killed by \\ud800")
    assert orphan.counters == Counters(crashes=1, by_rule=(("r", 1),))
    assert orphan.cancel_requested


async def test_the_run_that_ended_a_worker_is_marked_as_the_culprit(build: Build) -> None:
    worker = await build.worker()
    culprit, *neighbours = await build.running(3, worker=worker)
    await build.store.retire_worker(
        worker, why="killed by signal 11", is_loss=False, only_if_expired=False, culprit=culprit.fence
    )
    reported = {orphan.fence: orphan.is_culprit for orphan in await build.store.list_orphans()}
    assert reported == {culprit.fence: True, **{task.fence: False for task in neighbours}}


async def test_an_earlier_run_of_a_task_is_not_blamed_for_a_later_one(build: Build) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    await build.done(Released(task.fence, "shutdown"))
    [again] = await build.claim(worker, queues=("q",))
    await build.store.retire_worker(
        worker, why="killed", is_loss=False, only_if_expired=False, culprit=task.fence
    )
    assert {orphan.fence: orphan.is_culprit for orphan in await build.store.list_orphans()} == {
        again.fence: False
    }


async def test_no_run_is_blamed_if_the_culprit_is_unknown(build: Build) -> None:
    await build.orphaned(2)
    assert {orphan.is_culprit for orphan in await build.store.list_orphans()} == {None}


async def test_orphans_are_listed_oldest_first_up_to_the_limit(build: Build, clock: SettableClock) -> None:
    fences = []
    for _ in range(5):
        fences += [task.fence for task in await build.orphaned()]
        clock.advance(1)
    assert [orphan.fence for orphan in await build.store.list_orphans(limit=3)] == fences[:3]


async def test_old_retired_workers_without_runs_are_deleted(build: Build, clock: SettableClock) -> None:
    [task] = await build.orphaned()
    empty = await build.worker()
    await build.store.retire_worker(empty, why="done", is_loss=False, only_if_expired=False)
    await build.worker()
    assert await build.store.delete_retired_workers(60.0) == 0
    clock.advance(61)
    assert await build.store.delete_retired_workers(60.0) == 1
    await build.done(succeeded(task.fence))
    assert await build.store.delete_retired_workers(60.0) == 1
    assert len(await build.store.list_workers()) == 1


async def test_passes_of_all_reapers_without_a_gap_count_from_the_first(
    build: Build, clock: SettableClock
) -> None:
    async def passed() -> tuple[float, float, tuple[str, ...]]:
        at, since, restored = await build.store.record_reaper_pass(
            longest_gap_seconds=15.0, lease_seconds=30.0
        )
        return at - START, since - START, restored

    assert await passed() == (0, 0, ())
    clock.advance(15)
    assert await passed() == (15, 0, ())
    clock.advance(16)
    assert await passed() == (31, 31, ())
    clock.advance(1)
    assert await passed() == (32, 31, ())
    assert await build.store.list_workers() == []
    assert await build.store.check_integrity() == []


async def lose_worker_rows(store: Any) -> None:
    """Delete every worker's row, as a person or a restored backup may."""
    if hasattr(store, "_database"):
        await store._database.autocommit(lambda db: db.run("DELETE FROM /*schema*/worker"))
    else:
        await store._write_on_connection(lambda db: db.execute("DELETE FROM worker"))


async def test_a_run_whose_worker_row_was_deleted_gets_a_worker_row_again(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run()
    await lose_worker_rows(build.store)
    assert any("runs belong to no worker" in fault for fault in await build.store.check_integrity())
    noted = await build.store.record_reaper_pass(longest_gap_seconds=15.0, lease_seconds=30.0)
    (worker,) = await build.store.list_workers()
    assert noted.restored_workers == (worker.id,)
    assert (worker.name, worker.expires_at) == ("its row was missing", START + 30)
    assert await build.store.extend_leases([worker.id], 30.0) == set(), "one that lives keeps its runs"
    assert await build.store.list_orphans() == []
    await build.store.cancel([task.fence.task_id])
    await build.store.retire_worker(worker.id, why="lease ran out", is_loss=True, only_if_expired=False)
    (orphan,) = await build.store.list_orphans()
    assert (orphan.fence, orphan.cancel_requested) == (task.fence, True)
    again = await build.store.record_reaper_pass(longest_gap_seconds=15.0, lease_seconds=30.0)
    assert again.restored_workers == ()
    assert await build.store.check_integrity() == []


async def test_no_task_is_claimed_by_a_worker_during_its_retirement(
    build: Build, clients: Clients, clock: SettableClock
) -> None:
    async with opened(clients) as reaper:
        for _ in range(30):
            worker = await build.worker()
            await build.enqueue(3)
            claim, _ = await asyncio.gather(
                build.store.claim(build.request(worker)),
                reaper.retire_worker(worker, why="test", is_loss=True, only_if_expired=False),
            )
            held = {orphan.fence for orphan in await build.store.list_orphans()}
            assert {task.fence for task in claim.tasks} == held
            await build.done(*(succeeded(fence) for fence in held))
            assert claim.is_alive or not claim.tasks
