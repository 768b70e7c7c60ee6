"""The database file as this process sees it: opened when first needed, and again whenever it must be."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import apsw

from tidegate.store.sqlite import connection, schema
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.wrap import left_behind, vanished

log = logging.getLogger("tidegate.store")


class Place:
    """Where the store's file lies, and whether it was seen there; shared by all connections of a process.

    Once seen, a file that has vanished is not made again: a new one would hide that tasks were lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_seen = False


class DatabaseFile:
    """One connection to the store's file, for one thread at a time.

    Args:
        place: Where the file is. It is made, with its directory, when it was never there.
        busy_seconds: How long SQLite waits for a writer that does not take our lock file.
    """

    def __init__(self, place: Place, *, busy_seconds: float) -> None:
        self.path = path = place.path
        self._place = place
        self._busy_seconds = busy_seconds
        self.lock = FileLock(path.with_name(path.name + ".lock"))
        self.opened = 0
        """How often the file was opened; tells one connection from the next."""
        self._db: apsw.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._is_checked = False

    def connection(self, *, checked: bool = True) -> apsw.Connection:
        """Return the open connection, opening it first where needed; make the schema of a new file.

        A connection whose file was deleted, moved or replaced meanwhile is let go first: its commits
        would be lost.

        Args:
            checked: Whether the schema must be this version's.

        Raises:
            ConfigError: The file may not lie there.
            SchemaError: The schema is not this version's.
            StoreUnavailableError: The file has vanished.
            apsw.Error, OSError: As the systems say.
        """
        self._notice_replacement()
        if self._db is None:
            self._db = self._open()
        if checked and not self._is_checked:
            self._check_schema(self._db)
        return self._db

    def drop(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._db is not None:
            with suppress(apsw.Error):
                self._db.close(True)
        self._db = None
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
        self._is_checked = False
        with suppress(OSError):
            self.lock.forget()
        return inherited

    def _open(self) -> apsw.Connection:
        if not self._place.was_seen:
            connection.check_build()
            connection.check_place(self.path)
        was_here = self.lock.path.exists()  # asked first: who makes the file makes this one after it
        if not self.path.exists():
            if self._place.was_seen:
                raise vanished(str(self.path))
            self._make_file(was_here)
        there = self.path.stat()
        self._inode = (there.st_dev, there.st_ino)
        self.opened += 1
        return connection.connect(self.path, busy_seconds=self._busy_seconds)

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
        else:
            log.info("made a new store at %s", self.path)

    def _check_schema(self, db: apsw.Connection) -> None:
        if schema.is_empty(db):
            self._make_schema(db)
        schema.check(db)
        self._is_checked = True
        self._place.was_seen = True

    def _make_schema(self, db: apsw.Connection) -> None:
        with self.lock.held():
            db.execute("BEGIN IMMEDIATE")
            try:
                schema.upgrade(db)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _notice_replacement(self) -> None:
        if self._db is None:
            return
        try:
            there = self.path.stat()
        except FileNotFoundError:
            self.drop()
            raise vanished(str(self.path)) from None
        if (there.st_dev, there.st_ino) != self._inode:
            self.drop()


def _has_content(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_size > 0
    return False
