"""Replace a database file by a backup while no process has one of the two files open."""

from __future__ import annotations

import fcntl
import glob
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tidegate.errors import ConfigError, StoreBusyError
from tidegate.store.sqlite import connection, query, schema
from tidegate.store.sqlite.file_identity import INDEX_LOCKS
from tidegate.store.sqlite.file_record import restoring, stat_of
from tidegate.store.sqlite.lock import FileLock

_FILE_LOCKS = (512, 0x40000000)
"""How many bytes of a database file SQLite locks, and from which offset. https://sqlite.org/fileformat.html,
1.2"""
_PAGES_AT_ONCE = 10_000
_UNFINISHED = ".restoring-"
"""A restore names its copy by the file's name, this text and the process id."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The result of a restore, or of a dry run."""

    path: Path
    backup: Path
    tasks: int
    """Tasks in the backup, in any state."""
    is_old: bool
    """Whether the backup's schema must be upgraded before use."""
    kept: tuple[Path, ...]
    """The new paths of the files that were replaced."""


def restore(backup: Path, path: Path, *, dry_run: bool = False) -> RestoreReport:
    """Put a copy of `backup` at `path`; keep the old files under other names.

    The copy is complete, checked and on the disk before the old file is touched. The old log is moved away
    with its file, so that it cannot be applied to the new one.

    Args:
        backup: A database file of Tidegate. If it has a log of its own, the log is read too.
        path: The database file to replace; it need not exist.
        dry_run: Whether to check everything and change nothing.

    Raises:
        ConfigError: The backup is missing, damaged, or belongs to another program.
        SchemaError: The backup was written by a newer version of Tidegate.
        StoreBusyError: A process has the database open.
    """
    backup, named = backup.absolute(), path.absolute()
    path = Path(os.path.realpath(named))
    if not backup.is_file():
        raise ConfigError(
            f"there is no backup at {backup}", fix="name the file that the backup was written to"
        )
    if path.exists() and backup.samefile(path):
        raise ConfigError(
            f"{backup} is the database itself", fix="name the file that the backup was written to"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    connection.check_place(path)
    _remove_unfinished(path)
    fresh = path.with_name(f"{path.name}{_UNFINISHED}{os.getpid()}")
    try:
        tasks, is_old = _copy(backup, fresh)
        with _alone(named, path) as lock:
            kept = () if dry_run else _swap(fresh, path, lock)
    finally:
        _remove(fresh)
    return RestoreReport(path, backup, tasks, is_old, kept)


def _remove_unfinished(path: Path) -> None:
    """Remove the copies that restores of this file left behind when they were killed."""
    for left in path.parent.glob(f"{glob.escape(path.name)}{_UNFINISHED}*"):
        pid = left.name.removeprefix(f"{path.name}{_UNFINISHED}")
        if pid.isdecimal() and not _is_running(int(pid)):
            _remove(left)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the copy belongs to another user
        return True
    return True


def _remove(copy: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        copy.with_name(copy.name + ending).unlink(missing_ok=True)


def _copy(backup: Path, fresh: Path) -> tuple[int, bool]:
    """Write a checked copy of the backup to `fresh`; return its number of tasks and whether it is old."""
    connection.make_file(fresh)
    target = apsw.Connection(str(fresh), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        try:
            source = apsw.Connection(str(backup), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.CantOpenError:
            source = apsw.Connection(f"{backup.as_uri()}?immutable=1", flags=_READ_ONLY_BY_URI)
        source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the backup is not changed
        try:
            with target.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(_PAGES_AT_ONCE)
        finally:
            source.close()
        findings = [line for (line,) in query.rows(target, "PRAGMA integrity_check(3)")]
        if findings != ["ok"]:
            raise ConfigError(
                f"the backup {backup} is damaged: {'; '.join(findings)}", fix="use another backup"
            )
        if schema.is_empty(target):
            raise ConfigError(f"the backup {backup} is empty", fix="use another backup")
        is_old = schema.check_usable(target, str(backup))
        tasks: int = query.value(target, "SELECT count(*) FROM task")
        target.execute("PRAGMA journal_mode = DELETE")
    except apsw.Error as error:
        raise ConfigError(f"the backup {backup} cannot be read: {error}", fix="use another backup") from error
    finally:
        target.close()
    _sync(fresh)
    return tasks, is_old


_READ_ONLY_BY_URI = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


@contextmanager
def _alone(named: Path, path: Path) -> Iterator[FileLock]:
    """Keep other processes from using the database in the `with` block; yield the writers' lock.

    Args:
        named: The path that processes use; the writers' lock is next to it.
        path: The file to which `named` resolves if it is a symbolic link.

    Raises:
        StoreBusyError: A process has the database open.
    """
    with ExitStack() as stack:
        lock = FileLock(named.with_name(named.name + ".lock"))
        stack.callback(lock.forget)
        if not stack.enter_context(lock.held_if_free()):
            raise _in_use(path)
        for file, bytes_locked in ((path, _FILE_LOCKS), (Path(f"{path}-shm"), INDEX_LOCKS)):
            with suppress(FileNotFoundError):
                opened = stack.enter_context(file.open("r+b"))
                try:
                    fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, *bytes_locked)
                except (BlockingIOError, PermissionError):
                    raise _in_use(path) from None
        yield lock


def _swap(fresh: Path, path: Path, lock: FileLock) -> tuple[Path, ...]:
    """Move the old files away, the log first, and put the new file in place.

    Without its log the old file lacks its last commits. So the side file forbids opening it until the new
    file is in place. If this process is killed before that, the restore must be run again.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.before-{stamp}-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    kept: list[Path] = []
    log, log_aside = Path(f"{path}-wal"), Path(f"{aside}-wal")
    lock.write(restoring(stat_of(str(path))))
    _sync(lock.path)
    try:
        if path.exists():
            try:
                os.link(path, aside)  # so that the path has a database at every moment
            except OSError:  # a file system without links
                path.rename(aside)
            kept.append(aside)
        if log.exists():
            log.rename(log_aside)
            kept.append(log_aside)
        Path(f"{path}-shm").unlink(missing_ok=True)
        fresh.replace(path)
    except OSError:
        if log_aside in kept:
            log_aside.rename(log)
        if aside in kept:
            aside.rename(path)
            aside.unlink(missing_ok=True)  # if both names are one file, `rename` keeps both
        lock.write(b"")
        raise
    _sync(path.parent)
    lock.write(b"")
    return tuple(kept)


def _in_use(path: Path) -> StoreBusyError:
    return StoreBusyError(
        f"a process has {path} open; nothing was changed",
        fix="stop every worker, web server and client that uses it, then try again",
        place=str(path),
    )


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
