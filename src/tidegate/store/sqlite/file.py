"""The database file as this process sees it: opened when first needed, and again whenever it must be."""

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
    """Where the store's file lies, and whether it was seen there; shared by all connections of a process.

    Once seen, a file that has vanished is not made again: a new one would hide that tasks were lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_seen = False
        self.opened_by: set[object] = set()
        """The connections of this process that are open: all of one file."""
        self.inode = 0
        """Of that file."""
        self.was_refused = False
        """Whether the log already says that the file was replaced."""


class DatabaseFile:
    """One connection to the store's file, for one thread at a time.

    Args:
        location: Where the file is. It is made, with its directory, when it was never there.
        busy_seconds: How long SQLite waits for a writer that does not take our lock file.
    """

    def __init__(self, location: FileLocation, *, busy_seconds: float) -> None:
        self.path = path = location.path
        self._location = location
        self._busy_seconds = busy_seconds
        self.lock = FileLock(path.with_name(path.name + ".lock"))
        self.opened = 0
        """How often the file was opened; tells one connection from the next."""
        self._db: apsw.Connection | None = None
        self.identity = Identity(path, self.lock)
        self._is_checked = False

    def connection(self, *, checked: bool = True) -> apsw.Connection:
        """Return the open connection, opening it first where needed; make the schema of a new file.

        A connection whose file was deleted, moved or replaced meanwhile is kept, and refuses to be used until
        the file is back: a new one would apply the old log to whatever lies there now.

        Args:
            checked: Whether the schema must be this version's.

        Raises:
            ConfigError: The file may not lie there.
            SchemaError: The schema is not this version's, or the file another program's.
            StoreUnavailableError: The file has vanished or was replaced.
            apsw.Error, OSError: As the systems say.
        """
        if self._db is None:
            self._db = self._open()
        else:
            with self._warning_of_replacement():
                self.identity.demand(self._db)
        if checked and not self._is_checked:
            self._check_schema(self._db)
        return self._db

    def open_connection(self) -> apsw.Connection | None:
        """Return the connection as it is, if it is open; what the caller does next must check it."""
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
        """Let go of everything. Safe to repeat."""
        self.drop()
        self.lock.forget()

    def forget(self) -> apsw.Connection | None:
        """Let go in a forked child without touching what the parent uses.

        Returns:
            The inherited connection. It must never be closed: SQLite would drop the parent's files.
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
        was_here = self.lock.path.exists()  # asked first: who makes the file makes this one after it
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
            raise replaced(str(self.path), "this process has the file before it open")

        def check(fresh: apsw.Connection) -> None:
            identity.require_content(fresh, inode)
            schema.demand_ours(fresh)  # the file of another generation or program is left as it is

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
        """Log, once for each file, that this one is refused."""
        try:
            yield
        except StoreUnavailableError as error:
            if error.facts.get("is_replaced") and not self._location.was_refused:
                self._location.was_refused = True
                log.error("%s", error)
            raise
        self._location.was_refused = False

    def _make_file(self, was_here: bool) -> None:
        """Make an empty file, and tell: where there was one before, its tasks are missed sooner or later.

        Raises:
            StoreUnavailableError: Commits of the one before are still here, and SQLite would delete them.
        """
        if _has_content(self.path.with_name(self.path.name + "-wal")):
            raise left_behind(str(self.path))
        connection.make_file(self.path)
        if was_here:
            log.warning(
                "made a new, empty store at %s: one was there before, and was moved or deleted", self.path
            )
        elif self.path.parent.name == connection.OWN_DIRECTORY and _script_lies_elsewhere():
            log.warning(
                "made a new store at %s, in the working directory: other programs find it only from there. "
                "To share one, write database = … into the project's tidegate.toml",
                self.path.absolute(),
            )
        else:
            log.info("made a new store at %s", self.path.absolute())

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
    """Whether the script that was started lies neither in the working directory nor among installed ones."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file or str(file).startswith("<"):
        return False
    directory = Path(file).absolute().parent
    return not any(directory.is_relative_to(near) for near in (Path.cwd(), sys.prefix, sys.base_prefix))


def _has_content(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size > 0
    return False
