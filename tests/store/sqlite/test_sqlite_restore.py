"""Replacing the file by a backup: checked first, and never while a process has the file open."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from sqlite_support import holder_of, lock_file
from store_build import Build

from tidegate.errors import ConfigError, SchemaError, StoreBusyError, StoreUnavailableError
from tidegate.store.rows import TaskFilter
from tidegate.store.sqlite import restore as restore_module
from tidegate.store.sqlite.restore import restore
from tidegate.store.sqlite.store import SqliteStore


@pytest.fixture
async def backup(store: SqliteStore, build: Build, path: Path) -> Path:
    """A backup with two tasks of a store that has a third since."""
    await build.enqueue(2)
    copy = path.with_name("backup.db")
    db = apsw.Connection(str(path))
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()
    await build.one()
    await store.close()
    return copy


async def tasks_of(path: Path) -> int:
    store = SqliteStore(path)
    try:
        assert await store.check_integrity() == []
        return len(await store.list_tasks(TaskFilter(), limit=100))
    finally:
        await store.close()


async def test_a_restore_replaces_the_file_and_keeps_the_old_one(backup: Path, path: Path) -> None:
    before = backup.read_bytes()
    done = restore(backup, path)
    assert (done.tasks, done.is_old, await tasks_of(path)) == (2, False, 2)
    (kept,) = done.kept
    assert await tasks_of(kept) == 3
    assert backup.read_bytes() == before
    assert not list(path.parent.glob("*.restoring-*"))


async def test_a_restore_removes_the_copies_of_killed_restores_but_not_of_running_ones(
    backup: Path, path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    running = path.with_name(f"{path.name}.restoring-1")
    left = [path.with_name(f"{path.name}.restoring-{ended.pid}{ending}") for ending in ("", "-wal")]
    for copy in (running, *left):
        copy.write_bytes(b"unfinished")
    restore(backup, path)
    assert list(path.parent.glob("*.restoring-*")) == [running]


async def test_commits_in_the_log_of_killed_processes_are_kept_with_their_file(
    backup: Path, path: Path, tmp_path: Path
) -> None:
    store = SqliteStore(path)
    await store.open()
    shutil.copytree(path.parent, tmp_path / "killed")  # as a kill leaves it: with the log
    await store.close()
    place = tmp_path / "killed" / path.name
    done = restore(backup, place)
    assert [file.name.endswith("-wal") for file in done.kept] == [False, True]
    assert await tasks_of(place) == 2
    assert await tasks_of(done.kept[0]) == 3


async def test_a_missing_file_can_be_restored(backup: Path, path: Path) -> None:
    path.unlink()
    assert restore(backup, path).kept == ()
    assert await tasks_of(path) == 2


async def test_a_restore_follows_a_symbolic_link(backup: Path, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    restore(backup, link)
    assert link.is_symlink()
    assert await tasks_of(path) == 2


async def test_a_dry_run_changes_nothing(backup: Path, path: Path) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    done = restore(backup, path, dry_run=True)
    assert (done.tasks, done.kept) == (2, ())
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


async def test_a_restore_refuses_a_database_that_a_writer_has_locked(backup: Path, path: Path) -> None:
    before = path.read_bytes()
    with lock_file(path), pytest.raises(StoreBusyError, match=r"has .* open"):
        restore(backup, path)
    assert path.read_bytes() == before


async def test_a_restore_refuses_a_database_that_another_process_has_open(backup: Path, path: Path) -> None:
    with holder_of(path) as holder:
        with pytest.raises(StoreBusyError, match=r"has .* open"):
            restore(backup, path)
        backup.with_name("mv.db").write_bytes(backup.read_bytes())
        backup.with_name("mv.db").replace(path)
        with pytest.raises(StoreBusyError, match=r"has .* open"):
            restore(backup, path)
        assert holder.enqueue() == "refused"
        holder.kill()
    restore(backup, path)
    assert await tasks_of(path) == 2


@pytest.mark.parametrize("content", [b"", b"no database, but long enough to be looked at " * 100])
async def test_a_file_that_is_not_a_database_is_not_restored(
    backup: Path, path: Path, content: bytes
) -> None:
    backup.write_bytes(content)
    with pytest.raises(ConfigError, match="backup"):
        restore(backup, path)
    assert await tasks_of(path) == 3


async def test_a_damaged_backup_is_not_restored(backup: Path, path: Path) -> None:
    content = bytearray(backup.read_bytes())
    content[4096 * 3 : 4096 * 12] = bytes(4096 * 9)
    backup.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged|cannot be read"):
        restore(backup, path)
    assert await tasks_of(path) == 3


async def test_another_programs_database_is_not_restored(backup: Path, path: Path) -> None:
    other = path.with_name("other.db")
    db = apsw.Connection(str(other))
    db.execute("CREATE TABLE cake (name)")
    db.close()
    with pytest.raises(SchemaError, match="another program"):
        restore(other, path)
    assert await tasks_of(path) == 3


async def test_the_database_itself_is_refused_as_a_backup(backup: Path, path: Path) -> None:
    with pytest.raises(ConfigError, match="the database itself"):
        restore(path, path)
    with pytest.raises(ConfigError, match="there is no backup"):
        restore(path.with_name("nothing.db"), path)


async def test_a_restore_reports_that_an_older_schema_needs_an_upgrade(
    backup: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = apsw.Connection(str(backup))
    db.execute("DELETE FROM migration WHERE number = (SELECT max(number) FROM migration)")
    db.close()
    assert restore(backup, path).is_old


KILLED = """
import os, signal, sys
from pathlib import Path
from tidegate.store.sqlite.restore import restore

step = int(sys.argv[3])
real = {name: getattr(Path, name) for name in ("rename", "unlink", "replace")}

def killing(name):
    def call(self, *args, **kwargs):
        global step
        if "restoring" not in self.name or name == "replace":
            step -= 1
            if step < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return real[name](self, *args, **kwargs)
    return call

for name in real:
    setattr(Path, name, killing(name))
restore(Path(sys.argv[1]), Path(sys.argv[2]))
"""
"""A program that restores a backup and kills itself before a step: move log, delete index, place backup."""


@pytest.mark.parametrize("steps", range(4))
async def test_a_killed_restore_leaves_no_usable_store_without_its_last_commits(
    backup: Path, path: Path, steps: int
) -> None:
    with holder_of(path) as holder:
        holder.kill()  # as after a crash: the last commit is only in the log
    done = subprocess.run([sys.executable, "-c", KILLED, backup, path, str(steps)], check=False)
    assert done.returncode == (-signal.SIGKILL if steps < 3 else 0)
    if steps < 3:
        with pytest.raises(StoreUnavailableError, match="was interrupted"):
            await tasks_of(path)
        restore(backup, path)
    assert await tasks_of(path) == 2
    (log,) = path.parent.glob("*.before-*-wal")
    assert await tasks_of(log.with_name(log.name.removesuffix("-wal"))) == 4


async def test_a_swap_that_fails_puts_the_log_back(
    backup: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Path) -> None:
        raise OSError(5, "Input/output error")

    with holder_of(path) as holder:
        holder.kill()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fails)
        with pytest.raises(OSError, match="Input/output"):
            restore(backup, path)
    assert await tasks_of(path) == 4
    assert not [file for file in path.parent.glob("*.before-*") if file.stat().st_ino != path.stat().st_ino]


async def test_a_restore_that_fails_before_the_swap_changes_nothing(
    backup: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    before = {file.name for file in path.parent.iterdir()}
    monkeypatch.setattr(restore_module, "_sync", fails)
    with pytest.raises(OSError, match="No space"):
        restore(backup, path)
    assert {file.name for file in path.parent.iterdir()} == before
    assert await tasks_of(path) == 3
