"""A database file replaced while in use: all processes refuse it, and the old log is never applied to it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from sqlite_support import holder_of, integrity, lock_file, other_writer
from store_build import Build, SettableClock

from support import until
from tidegate.errors import StoreUnavailableError
from tidegate.store.rows import TaskFilter
from tidegate.store.sqlite import file_identity
from tidegate.store.sqlite.file_record import FileRecord, FileStats
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.store import SqliteStore


async def opens(path: Path) -> str:
    """Return what another client gets that opens the store now: the number of tasks, or `refused`."""
    store = SqliteStore(path)
    try:
        return str(len(await store.list_tasks(TaskFilter(), limit=1_000)))
    except StoreUnavailableError as error:
        return "refused" if "was replaced" in str(error) else repr(error)
    finally:
        await store.close()


def backed_up(path: Path) -> Path:
    """A copy made as the documentation describes."""
    copy = path.with_name("backup.db")
    db = apsw.Connection(str(path))
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()
    return copy


def by_mv(backup: Path, path: Path) -> None:
    backup.replace(path)


def by_cp(backup: Path, path: Path) -> None:
    shutil.copyfile(backup, path)


def by_cp_of_a_page_by_page_copy(backup: Path, path: Path) -> None:
    """A copy by `.backup` of the state before the last tasks."""
    same = backup.with_name("same.db")
    source, target = apsw.Connection(str(backup)), apsw.Connection(str(same))
    with target.backup("main", source, "main") as copying:
        copying.step()
    source.close()
    target.close()
    shutil.copyfile(same, path)


def by_rm_and_new(backup: Path, path: Path) -> None:
    path.unlink()
    backup.rename(path)  # it existed at the same time as the old one, so it has another inode


def by_rm_of_all_and_new(backup: Path, path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink()
    shutil.copyfile(backup, path)


WAYS: list[Callable[[Path, Path], None]] = [
    by_mv, by_cp, by_cp_of_a_page_by_page_copy, by_rm_and_new, by_rm_of_all_and_new,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_a_replaced_file_is_refused_and_not_changed(
    store: SqliteStore, build: Build, path: Path, way: Callable[[Path, Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    kept = await build.one()
    backup = backed_up(path)
    await build.enqueue(3)
    way(backup, path)
    put_there = path.read_bytes()
    for _ in range(2):
        for call in (
            build.one,
            store.get_queue_stats,
            lambda: store.claim(build.request("w")),
            store.checkpoint,
        ):
            with pytest.raises(StoreUnavailableError, match="was replaced") as caught:
                await call()
            assert "tidegate db restore" in caught.value.fix
    assert [record.levelname for record in caplog.records if "was replaced" in record.message] == ["ERROR"]
    await store.close()
    assert path.read_bytes() == put_there
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    assert integrity(path) == "ok"
    fresh = SqliteStore(path)
    assert set(await fresh.read_tasks([kept])) == {kept}
    await fresh.close()


async def test_a_changed_symbolic_link_is_refused(store: SqliteStore, build: Build, path: Path) -> None:
    await build.one()
    await store.close()
    first, second, link = (path.with_name(name) for name in ("first.db", "second.db", "link.db"))
    path.rename(first)
    shutil.copyfile(first, second)
    link.symlink_to(first)
    linked = SqliteStore(link)
    other = Build(linked, SettableClock())
    await other.enqueue(2)  # the first is the existing one
    link.unlink()
    link.symlink_to(second)
    with pytest.raises(StoreUnavailableError, match="was replaced"):
        await other.one()
    assert await opens(link) == "1"
    await linked.close()
    assert (await opens(first), await opens(link), integrity(second)) == ("2", "1", "ok")


@pytest.mark.parametrize("held", [lock_file, other_writer])
@pytest.mark.parametrize("way", [by_mv, by_cp])
async def test_a_write_that_waited_while_the_file_was_replaced_writes_nothing(
    store: SqliteStore, build: Build, path: Path, held: Callable[[Path], object],
    way: Callable[[Path, Path], None],
) -> None:  # fmt: skip
    await build.one()
    backup = backed_up(path)
    await build.one()
    with held(path):  # type: ignore[attr-defined]
        waiting = asyncio.ensure_future(build.one())
        queue = store._runner._writer._queue  # type: ignore[attr-defined]

        async def is_taken() -> bool:
            return bool(queue.empty())

        await until(is_taken)
        await asyncio.sleep(0.05)  # it waits inside a system call, which the test cannot observe
        way(backup, path)
        put_there = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="was replaced"):
        await waiting
    assert path.read_bytes() == put_there


@pytest.mark.parametrize("way", [by_mv, by_cp, by_rm_and_new])
async def test_a_replaced_file_is_refused_until_the_old_processes_have_ended(
    tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "queue.db"
    with holder_of(path) as holder:
        backup = backed_up(path)
        assert holder.enqueue() == "stored"
        way(backup, path)
        assert holder.enqueue() == "refused"
        assert await opens(path) == "refused"
        assert holder.enqueue() == "refused"
        holder.end()
    if way is by_cp:
        # It is unknown what is left of the old file, so the old log is kept for a person to inspect.
        assert await opens(path) == "refused"
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
    assert await opens(path) == "1"
    assert integrity(path) == "ok"


@pytest.mark.parametrize("way", [by_mv, by_cp, by_rm_and_new])
async def test_the_log_of_killed_processes_is_not_applied_to_another_file(
    tmp_path: Path, way: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "queue.db"
    with holder_of(path) as holder:
        backup = backed_up(path)
        assert holder.enqueue() == "stored"
        holder.kill()
    log = path.with_name(path.name + "-wal")
    commits = log.read_bytes()
    way(backup, path)
    if way is by_cp:  # only its content shows that it is another file: a person has to decide
        put_there = path.read_bytes()
        assert await opens(path) == "refused"
        assert (path.read_bytes(), log.read_bytes()) == (put_there, commits)
        return
    assert await opens(path) == "1"
    assert integrity(path) == "ok"
    (aside,) = path.parent.glob("queue.db.before-*-wal")
    assert aside.read_bytes() == commits


async def test_the_log_of_killed_processes_is_applied_to_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with holder_of(path) as holder:
        holder.kill()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in tmp_path.glob("queue.db*"):
        shutil.copy(file, moved)
    assert await opens(path) == "1"
    assert await opens(moved / "queue.db") == "1", "a copy of the whole directory keeps file and log together"


async def test_a_file_put_back_is_used_again(store: SqliteStore, build: Build, path: Path) -> None:
    kept = await build.one()
    away = path.with_name("away.db")
    path.rename(away)
    path.write_bytes(b"something else")
    with pytest.raises(StoreUnavailableError, match="was replaced"):
        await build.one()
    away.replace(path)
    late = await build.one()
    assert set(await store.read_tasks([kept, late])) == {kept, late}


async def test_checkpoints_and_writes_of_other_programs_are_accepted(
    store: SqliteStore, build: Build, path: Path
) -> None:
    for mode in (apsw.SQLITE_CHECKPOINT_PASSIVE, apsw.SQLITE_CHECKPOINT_RESTART):
        await build.enqueue(3)
        foreign = apsw.Connection(str(path))
        foreign.execute("UPDATE task SET queue = 'other'")
        foreign.wal_checkpoint(mode=mode)
        await build.enqueue(3)
        assert await store.check_integrity() == []
        foreign.close()
    assert await opens(path) == "12"


async def test_an_interrupted_checkpoint_is_accepted(store: SqliteStore, build: Build, path: Path) -> None:
    await build.enqueue(3)
    lock = FileLock(path.with_name(path.name + ".lock"))
    with lock.held():
        record = FileRecord.parsed(lock.read())
        assert record is not None
        lock.write(replace(record, is_folding=True).text())
    lock.forget()
    os.utime(path)
    await build.one()
    assert await opens(path) == "4"


async def test_a_record_from_before_the_last_boot_raises_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "queue.db"
    with holder_of(path) as holder:
        holder.kill()
    os.utime(path)  # after a power failure the record may be older than the file
    assert await opens(path) == "refused"
    monkeypatch.setattr(file_identity, "boot_id", lambda: "another")
    store = SqliteStore(path)
    await store.open()
    await store.close()


async def test_a_touched_file_is_used_again_once_the_side_file_is_deleted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.db"
    with holder_of(path) as holder:
        os.utime(path)
        assert holder.enqueue() == "refused"
        holder.end()
    assert await opens(path) == "refused"
    path.with_name(path.name + ".lock").unlink()
    assert await opens(path) == "1"
    assert integrity(path) == "ok"


async def test_a_log_created_between_two_looks_at_the_files_is_not_taken_for_a_deleted_one(
    store: SqliteStore, build: Build, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next client looks for the log just before this one creates it, and for the index just after."""
    await build.one()
    real = file_identity.files_at
    looked: list[str] = []

    def before_the_log_was_created(name: str, *, with_index: bool) -> FileStats:
        looked.append(name)
        found = real(name, with_index=with_index)
        return found._replace(log=0, log_size=0) if len(looked) == 1 else found

    other = SqliteStore(path)
    monkeypatch.setattr(file_identity, "files_at", before_the_log_was_created)
    try:
        assert len(await other.list_tasks(TaskFilter(), limit=10)) == 1
    finally:
        await other.close()
    assert looked


async def test_the_log_is_checkpointed_by_writers_of_every_process(
    store: SqliteStore, build: Build, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = path.with_name(path.name + "-wal")
    await build.enqueue(100)
    monkeypatch.setattr(file_identity, "FOLD_PAGES", 10)
    for _ in range(5):
        await build.enqueue(100)
    assert path.stat().st_size > 100_000
    assert log.stat().st_size < 2_000_000
    assert await store.check_integrity() == []
    assert await opens(path) == "600"


async def test_a_closed_store_does_not_touch_the_file(store: SqliteStore, build: Build, path: Path) -> None:
    await build.one()
    await store.close()
    assert not path.with_name(path.name + "-wal").exists()
    assert not path.with_name(path.name + "-shm").exists()
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    assert await opens(copy) == "1"
