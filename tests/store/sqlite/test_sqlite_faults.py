"""Faults of disk and files: errors are clear, the store recovers, and no stored task is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest
from sqlite_support import integrity, run_sql
from store_build import Build, SettableClock, ids_of, succeeded

from tidegate.errors import StoreUnavailableError
from tidegate.store.rows import TaskFilter
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore


async def limit_pages(store: SqliteStore, extra: int) -> None:
    [(pages,)] = await run_sql(store, "PRAGMA page_count", Mode.BARE)
    await run_sql(store, f"PRAGMA max_page_count = {pages + extra}", Mode.BARE)  # type: ignore[operator]


async def test_a_full_disk_raises_an_error_and_leaves_the_rows_intact(
    store: SqliteStore, build: Build, path: Path
) -> None:
    kept = await build.enqueue(50)
    await limit_pages(store, 5)
    with pytest.raises(StoreUnavailableError, match="full") as caught:
        await build.enqueue(2_000, args=b"x" * 500)
    assert isinstance(caught.value.__cause__, apsw.FullError)
    assert "space" in caught.value.fix
    assert [row.id for row in await store.list_tasks(TaskFilter(), limit=100)] == kept[::-1]
    assert integrity(path) == "ok"
    assert ids_of(await build.claim(await build.worker())) == kept
    await limit_pages(store, 10_000)
    assert len(await build.enqueue(2_000, args=b"x" * 500)) == 2_000
    assert await store.check_integrity() == []


async def test_a_worker_can_finish_its_runs_after_the_disk_was_full(store: SqliteStore, build: Build) -> None:
    tasks = await build.running(20)
    await limit_pages(store, 0)
    with pytest.raises(StoreUnavailableError):
        await store.finish([succeeded(task.fence, b"x" * 9_000) for task in tasks])
    await limit_pages(store, 1_000)
    await build.done(*(succeeded(task.fence, b"x" * 9_000) for task in tasks))
    assert await store.check_integrity() == []


async def test_a_directory_that_vanishes_and_returns_loses_nothing(
    store: SqliteStore, build: Build, path: Path
) -> None:
    kept = await build.enqueue(5)
    away = path.parent.with_name("away")
    path.parent.rename(away)
    for call in (build.one, store.get_queue_stats, lambda: store.claim(build.request("w")), store.checkpoint):
        with pytest.raises(StoreUnavailableError) as caught:
            await call()
        assert caught.value.fix
    assert not path.parent.exists(), "a new file would hide that tasks are lost"
    await store.wait_for_change(0.05)
    away.rename(path.parent)
    late = await build.one()
    assert set(await store.read_tasks([*kept, late])) == {*kept, late}
    assert await store.check_integrity() == []


async def test_a_deleted_file_is_detected_before_a_write(
    store: SqliteStore, build: Build, path: Path
) -> None:
    await build.one()
    path.unlink()
    with pytest.raises(StoreUnavailableError, match="vanished"):
        await build.one()
    with pytest.raises(StoreUnavailableError, match="vanished"):
        await store.get_queue_stats()


async def test_a_new_store_in_place_of_an_earlier_one_logs_a_warning(
    store: SqliteStore, build: Build, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await build.one()
    await store.close()
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    other = SqliteStore(path)
    await other.open()
    await other.close()
    (printed,) = [record for record in caplog.records if record.name == "tidegate.store"]
    assert (printed.levelname, str(path) in printed.getMessage()) == ("WARNING", True)
    assert "an earlier one was moved or deleted" in printed.getMessage()


async def test_a_first_store_is_created_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = SqliteStore(tmp_path / "first.db")
    await store.open()
    await store.close()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"created a new store at {tmp_path / 'first.db'}")
    ]


async def test_commits_left_behind_by_a_moved_file_are_not_deleted(
    store: SqliteStore, build: Build, path: Path
) -> None:
    kept = await build.one()
    away, log = path.with_name("away.db"), path.with_name(path.name + "-wal")
    commits = log.read_bytes()
    path.rename(away)
    other = SqliteStore(path)
    with pytest.raises(StoreUnavailableError, match="-wal"):
        await other.open()
    assert not path.exists()
    assert log.read_bytes() == commits != b""
    away.rename(path)
    assert set(await other.read_tasks([kept])) == {kept}
    await other.close()


async def test_a_replaced_file_is_used_once_no_process_has_the_old_one_open(
    store: SqliteStore, build: Build, path: Path, clock: SettableClock
) -> None:
    old = await build.one()
    await store.close()
    backup = path.with_name("backup.db")
    shutil.copy(path, backup)
    lost = await build.one()
    backup.replace(path)
    with pytest.raises(StoreUnavailableError, match="was replaced"):
        await build.one()
    await store.close()
    new = await build.one()
    assert set(await store.read_tasks([old, lost, new])) == {old, new}
    assert await store.check_integrity() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_directory_without_rights_raises_an_error(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    store = SqliteStore(shut / "queue.db")
    with pytest.raises(StoreUnavailableError):
        await store.open()
    await store.close()


async def test_a_path_that_cannot_be_a_file_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "queue.db", tmp_path):
        store = SqliteStore(path)
        with pytest.raises(StoreUnavailableError):
            await store.open()
        await store.close()


async def test_a_file_that_is_not_a_database_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(b"not a database, but long enough to be looked at " * 100)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailableError, match="not a SQLite database"):
        await store.open()
    await store.close()
    assert path.read_bytes().startswith(b"not a database")


async def test_a_damaged_file_is_found_by_the_check(store: SqliteStore, build: Build, path: Path) -> None:
    await build.enqueue(200)
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM ready WHERE task_id IN (SELECT task_id FROM ready LIMIT 3)")
    db.execute("DELETE FROM payload WHERE task_id IN (SELECT task_id FROM payload LIMIT 2)")
    db.close()
    assert sorted(await store.check_integrity()) == ["2 tasks have no arguments", "3 tasks are in no state"]


async def test_an_error_in_a_call_is_wrapped_and_the_thread_continues(
    store: SqliteStore, build: Build
) -> None:
    for statement, error in (
        ("SELECT * FROM nothing", apsw.SQLError),
        ("SELECT abs(-9223372036854775808)", Exception),
    ):
        for mode in (Mode.READ, Mode.WRITE, Mode.BARE):
            with pytest.raises(StoreUnavailableError) as caught:
                await run_sql(store, statement, mode)
            assert isinstance(caught.value.__cause__, error)
    await build.one()


async def test_an_error_not_from_sqlite_is_raised_unchanged(store: SqliteStore, build: Build) -> None:
    def fail(_: apsw.Connection) -> None:
        raise ZeroDivisionError("a fault in the work")

    for mode in Mode:
        with pytest.raises(ZeroDivisionError):
            await store._runner.run(fail, mode)
    await build.one()
