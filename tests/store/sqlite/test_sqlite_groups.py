"""Group commit: calls that wait for the lock are written together, and an error in one does not affect
others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest
from sqlite_support import lock_file, run_sql
from store_build import Build

from tidegate.errors import KeyConflictError, OptionError, StoreUnavailableError
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore


async def queued(*calls: object) -> list[asyncio.Task[object]]:
    """Start calls and let each reach the thread's queue."""
    tasks = [asyncio.ensure_future(call) for call in calls]  # type: ignore[call-overload]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_calls_that_wait_for_the_lock_are_written_in_one_commit(
    store: SqliteStore, build: Build, path: Path
) -> None:
    await build.one(key="k", fingerprint=b"other")
    commits = store._runner._writer.session.commits  # type: ignore[attr-defined]
    with lock_file(path):
        good = await queued(*(store.enqueue([build.new()]) for _ in range(20)))
        # Its first task is written before the second conflicts with the key.
        [conflict] = await queued(store.enqueue([build.new(key="free"), build.new(key="k")]))
        [refused] = await queued(store.enqueue([build.new(id="nonsense")]))
        good += await queued(*(store.enqueue([build.new()]) for _ in range(20)))
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in good)
    answers = await asyncio.gather(*good)
    with pytest.raises(KeyConflictError):
        await conflict
    with pytest.raises(OptionError):
        await refused
    assert store._runner._writer.session.commits - commits <= 2  # type: ignore[attr-defined]
    ids = [answer[0].task_id for answer in answers]  # type: ignore[index]
    assert len(await store.read_tasks(ids)) == 40
    assert (await run_sql(store, "SELECT count(*) FROM task"))[0] == (41,)
    assert await store.check_integrity() == []


async def test_a_call_that_makes_sqlite_roll_back_does_not_lose_other_calls(
    store: SqliteStore, build: Build, path: Path
) -> None:
    def ruin(db: apsw.Connection) -> None:
        db.execute("DELETE FROM task")
        db.execute("ROLLBACK")  # as SQLite does by itself when the disk is full or fails
        raise apsw.FullError("no space")

    with lock_file(path):
        before = await queued(*(store.enqueue([build.new()]) for _ in range(3)))
        [ruined] = await queued(store._runner.run(ruin, Mode.WRITE))
        after = await queued(*(store.enqueue([build.new()]) for _ in range(3)))
    with pytest.raises(StoreUnavailableError, match="full"):
        await ruined
    await asyncio.gather(*before, *after)
    assert (await run_sql(store, "SELECT count(*) FROM task"))[0] == (6,)
    assert await store.check_integrity() == []


async def test_no_result_is_returned_before_its_commit(store: SqliteStore, build: Build, path: Path) -> None:
    looked: list[object] = []

    async def enqueue_and_look() -> None:
        [answer] = await store.enqueue([build.new()])
        other = apsw.Connection(str(path))
        looked.append(other.execute("SELECT count(*) FROM ready").get)
        other.close()
        assert answer.created

    with lock_file(path):
        tasks = await queued(*(enqueue_and_look() for _ in range(10)))
    await asyncio.gather(*tasks)
    assert looked == [10] * 10


async def test_a_cancelled_call_that_has_not_begun_is_not_done(
    store: SqliteStore, build: Build, path: Path
) -> None:
    with lock_file(path):
        [first, second] = await queued(store.enqueue([build.new()]), store.enqueue([build.new()]))
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
    await first
    assert (await run_sql(store, "SELECT count(*) FROM task"))[0] == (1,)


async def test_each_caller_gets_its_own_copy_of_an_error(store: SqliteStore, path: Path) -> None:
    await run_sql(store, "DELETE FROM migration", Mode.WRITE)
    other = SqliteStore(path)
    errors = await asyncio.gather(*(other.get_queue_stats() for _ in range(3)), return_exceptions=True)
    assert len({id(error) for error in errors}) == 3
    await other.close()


async def test_one_store_serves_several_event_loops_at_once(store: SqliteStore, build: Build) -> None:
    new = [[build.new() for _ in range(20)] for _ in range(4)]

    def elsewhere(mine: list[object]) -> int:
        async def main() -> int:
            answers = await asyncio.gather(*(store.enqueue([task]) for task in mine))  # type: ignore[list-item]
            return sum(answer[0].created for answer in answers)

        return asyncio.run(main())

    created = await asyncio.gather(*(asyncio.to_thread(elsewhere, mine) for mine in new))  # type: ignore[arg-type]
    assert created == [20] * 4
    assert await store.check_integrity() == []


async def test_an_event_loop_closed_during_a_call_does_no_harm(
    store: SqliteStore, build: Build, path: Path
) -> None:
    def leaves() -> None:
        loop = asyncio.new_event_loop()
        left = loop.create_task(store.enqueue([build.new()]))
        for _ in range(2):
            loop.run_until_complete(asyncio.sleep(0))
        left.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    with lock_file(path):
        await asyncio.to_thread(leaves)
    await build.one()
    assert await store.check_integrity() == []
