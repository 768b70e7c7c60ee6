"""The database file of this process: opened at its first use, and reopened when needed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from tidegate.errors import StoreUnavailableError
from tidegate.store.sqlite import connection, schema
from tidegate.store.sqlite.errors import half_restored, left_behind, replaced, vanished
from tidegate.store.sqlite.file_identity import Identity
from tidegate.store.sqlite.file_record import is_half_restored, stat_of
from tidegate.store.sqlite.lock import FileLock

log = logging.getLogger("tidegate.store")


class FileLocation:
    """Where the store's file is, and whether it was seen there. All connections of a process share it.

    A file that was seen and has vanished is not created again: a new file would hide that tasks were lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_seen = False
        self.opened_by: set[object] = set()
        """The open connections of this process, all to the same file."""
        self.inode = 0
        """The inode of that file."""
        self.was_refused = False
        """Whether the replacement of the file was logged already."""


class DatabaseFile:
    """One connection to the store's file, for one thread at a time.

    Args:
        location: Where the file is. The file is created, with its directory, if it never existed.
        busy_seconds: How long SQLite waits for a writer that does not use our lock file.
    """

    def __init__(self, location: FileLocation, *, busy_seconds: float) -> None:
        self.path = path = location.path
        self._location = location
        self._busy_seconds = busy_seconds
        self.lock = FileLock(path.with_name(path.name + ".lock"))
        self.opened = 0
        """How many times the file was opened; identifies the connection."""
        self._db: apsw.Connection | None = None
        self.identity = Identity(path, self.lock)
        self._is_checked = False

    @property
    def is_ready(self) -> bool:
        """Whether the file is open and its schema was checked."""
        return self._db is not None and self._is_checked

    def connection(self, *, checked: bool = True) -> apsw.Connection:
        """Return the open connection; open the file first if needed, and create the schema of a new file.

        If the file was deleted, moved or replaced, its connection is kept and cannot be used until the file
        is back: a new connection would apply the old log to the file that is there now.

        Args:
            checked: Whether to check that the schema is this version's.

        Raises:
            ConfigError: The file is on a file system that is refused.
            SchemaError: The schema is not this version's, or the file belongs to another program.
            StoreUnavailableError: The file has vanished or was replaced.
            apsw.Error, OSError: SQLite or the file system failed.
        """
        if self._db is None:
            self._db = self._open()
        else:
            with self._warning_of_replacement():
                self.identity.require_same_files(self._db)
        if checked and not self._is_checked:
            self._check_schema(self._db)
        return self._db

    def open_connection(self) -> apsw.Connection | None:
        """Return the connection if it is open, without a check. The caller must check it."""
        return self._db

    def require_same_file_locked(self) -> None:
        """Check the open connection once the write lock is held.

        Raises:
            StoreUnavailableError: The file has vanished or was replaced.
        """
        assert self._db is not None
        with self._warning_of_replacement():
            self.identity.locked(self._db)

    def drop(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._db is not None:
            with suppress(apsw.Error, OSError):
                self.identity.close(self._db)
        self._db = None
        self._location.opened_by.discard(self)
        self._is_checked = False

    def close(self) -> None:
        """Close the connection and release the file. Safe to repeat."""
        self.drop()
        self.lock.forget()

    def forget(self) -> apsw.Connection | None:
        """Forget the connection in a forked child without touching what the parent uses.

        Returns:
            The inherited connection. The connection must never be closed: SQLite would drop the parent's
                locks.
        """
        inherited, self._db = self._db, None
        self.identity.forget()
        self._is_checked = False
        self._location.opened_by.discard(self)
        with suppress(OSError):
            self.lock.forget()
        return inherited

    def _open(self) -> apsw.Connection:
        if not self._location.was_seen:
            connection.check_build()
            connection.check_place(self.path)
        # This file is checked first: a process that creates the database file creates this file after it.
        was_here = self.lock.path.exists()
        if was_here and is_half_restored(self.lock.read(), stat_of(str(self.path))):
            raise half_restored(str(self.path))
        if not self.path.exists():
            if self._location.was_seen:
                raise vanished(str(self.path))
            self._make_file(was_here)
        self.identity = Identity(self.path, self.lock)
        with self._warning_of_replacement():
            self._db = self._connect()
        self.opened += 1
        return self._db

    def _connect(self) -> apsw.Connection:
        identity = self.identity
        inode = identity.require_openable()
        if self._location.opened_by and inode != self._location.inode:
            raise replaced(str(self.path), "this process has the earlier file open")

        def check(fresh: apsw.Connection) -> None:
            identity.require_content(fresh, inode)
            schema.require_ours(fresh)  # a file of another generation or program is not changed

        db = connection.connect(self.path, busy_seconds=self._busy_seconds, check=check)
        self._location.inode = inode
        self._location.opened_by.add(self)
        try:
            identity.opened(db, inode)
        except BaseException:
            self._location.opened_by.discard(self)
            db.close(True)
            raise
        return db

    @contextmanager
    def _warning_of_replacement(self) -> Iterator[None]:
        """Log, once per file, that this file is refused."""
        try:
            yield
        except StoreUnavailableError as error:
            if error.is_replaced and not self._location.was_refused:
                self._location.was_refused = True
                log.error("%s", error)
            raise
        self._location.was_refused = False

    def _make_file(self, was_here: bool) -> None:
        """Create an empty file and log this: if there was a file before, its tasks are missing.

        Raises:
            StoreUnavailableError: The log of the earlier file still has commits, which SQLite would delete.
        """
        if _has_content(self.path.with_name(self.path.name + "-wal")):
            raise left_behind(str(self.path))
        connection.make_file(self.path)
        if was_here:
            log.warning("created a new, empty store at %s: an earlier one was moved or deleted", self.path)
        elif self.path.parent.name == connection.OWN_DIRECTORY and _script_lies_elsewhere():
            log.warning(
                "created a new store at %s, in the working directory: other programs find it only from "
                "there. To share one, write database = … into the project's tidegate.toml",
                self.path.absolute(),
            )
        else:
            log.info("created a new store at %s", self.path.absolute())

    def _check_schema(self, db: apsw.Connection) -> None:
        if schema.is_empty(db):
            self._make_schema(db)
        schema.count_newer_migrations(db)
        self._is_checked = True
        self._location.was_seen = True

    def _make_schema(self, db: apsw.Connection) -> None:
        with self.lock.held():
            db.execute("BEGIN IMMEDIATE")
            try:
                schema.upgrade(db)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


def _script_lies_elsewhere() -> bool:
    """Whether the running script is neither in the working directory nor an installed one."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file or str(file).startswith("<"):
        return False
    directory = Path(file).absolute().parent
    return not any(directory.is_relative_to(near) for near in (Path.cwd(), sys.prefix, sys.base_prefix))


def _has_content(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size > 0
    return False
