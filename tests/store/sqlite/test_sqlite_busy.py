"""Waiting for other writers: a call waits, then raises a clear error, and never `database is locked`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlite_support import lock_file, other_writer, run_sql
from store_build import Build, SettableClock, expire

from tidegate.errors import StoreBusyError
from tidegate.store.sqlite.store import SqliteStore


@pytest.mark.parametrize("holder", [lock_file, other_writer])
async def test_a_write_waits_for_a_lock_that_is_released_in_time(
    store: SqliteStore, build: Build, path: Path, holder: object
) -> None:
    with holder(path):  # type: ignore[operator]
        writing = asyncio.create_task(store.enqueue([build.new()]))
        await asyncio.sleep(0.1)
        assert not writing.done()
    assert (await writing)[0].created


@pytest.mark.parametrize("holder", [lock_file, other_writer])
async def test_a_write_that_cannot_begin_raises_store_busy_and_is_never_done(
    hasty: SqliteStore, clock: SettableClock, path: Path, holder: object
) -> None:
    build = Build(hasty, clock)
    given_up = [build.new() for _ in range(5)]
    with holder(path):  # type: ignore[operator]
        answers = await asyncio.gather(*(hasty.enqueue([task]) for task in given_up), return_exceptions=True)
        assert all(isinstance(answer, StoreBusyError) for answer in answers)
        assert all("locked" not in str(answer) for answer in answers)
    kept = await build.one()
    assert await run_sql(hasty, "SELECT count(*) FROM task") == [(1,)]
    assert set(await hasty.read_tasks([kept, *(task.id for task in given_up)])) == {kept}


@pytest.mark.parametrize("holder", [lock_file, other_writer])
async def test_reading_needs_no_lock(hasty: SqliteStore, build: Build, path: Path, holder: object) -> None:
    task_id = await build.one()
    with holder(path):  # type: ignore[operator]
        assert set(await hasty.read_tasks([task_id])) == {task_id}
        assert (await hasty.get_queue_stats())[0].ready == 1


async def test_a_claim_without_ready_tasks_needs_no_lock(
    hasty: SqliteStore, build: Build, path: Path
) -> None:
    worker = await build.worker()
    await build.one(delay_seconds=60.0)
    with lock_file(path):
        assert (await hasty.claim(build.request(worker))).tasks == ()
        assert not (await hasty.claim(build.request("nobody"))).is_alive
        assert await hasty.promote() == 0
        assert await hasty.release_batches() == 0
        assert await expire(hasty, finished_seconds=1.0, dead_seconds=1.0) == 0
        await hasty.checkpoint()


async def test_a_store_that_was_busy_works_again_at_once(
    hasty: SqliteStore, clock: SettableClock, path: Path
) -> None:
    build = Build(hasty, clock)
    for _ in range(3):
        with lock_file(path), pytest.raises(StoreBusyError):
            await build.one()
        await build.one()
    assert await hasty.check_integrity() == []


async def test_closing_finishes_queued_calls(path: Path, clock: SettableClock, build: Build) -> None:
    store = SqliteStore(path, clock=clock)
    with lock_file(path):
        writing = asyncio.create_task(store.enqueue([build.new()]))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
    await closing
    assert (await writing)[0].created


async def test_closing_does_not_wait_for_ever_for_a_lock(
    hasty: SqliteStore, build: Build, path: Path
) -> None:
    with lock_file(path):
        writing = asyncio.create_task(hasty.enqueue([build.new()]))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(hasty.close(), 5.0)
        with pytest.raises(StoreBusyError):
            await writing
    assert await run_sql(hasty, "SELECT count(*) FROM task") == [(0,)]


async def test_a_deleted_lock_file_blocks_no_writer(store: SqliteStore, build: Build, path: Path) -> None:
    await build.one()
    path.with_name(path.name + ".lock").unlink()
    await build.one()
    with lock_file(path):
        writing = asyncio.create_task(store.enqueue([build.new()]))
        await asyncio.sleep(0.05)
        assert not writing.done(), "it does not wait for the lock file that is there now"
    await writing
