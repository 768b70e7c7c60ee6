"""Runs the work of the test store at once, in the caller's thread, for any threads and event loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tidegate.errors import StoreUnavailableError, TidegateError
from tidegate.store.common.waiters import Waiters
from tidegate.store.sqlite import connection, forks
from tidegate.store.sqlite.errors import wrap
from tidegate.store.sqlite.job import Mode, Precheck, T, Work
from tidegate.store.sqlite.work import complete
from tidegate.store.sqlite.writer import BUSY_SECONDS


class KitRunner:
    """Does each call at once: a test's store is small, and a thread of its own would only cost time.

    The file is the test's own, so it needs neither the queue of writers nor the checks for a replaced file.

    Args:
        path: The database file. The store must exist, with its schema.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: apsw.Connection | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._here = threading.local()
        self._is_over = False
        self._is_abandoned = False

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` now. Other coroutines of the loop run before this returns."""
        if self._is_abandoned:
            await asyncio.get_running_loop().create_future()
        done = self.run_now(work, mode, precheck=precheck)
        if not getattr(self._here, "is_direct", False):
            await asyncio.sleep(0)
        return done

    def run_now(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` now and return its result.

        Raises:
            StoreUnavailableError: The test has ended.
        """
        with self._lock:
            self._require_usable()
            db = self._connection()
            before = db.total_changes()
            try:
                done = work(db) if mode is not Mode.WRITE else _written(db, work, precheck)
            except TidegateError:
                raise
            except Exception as error:
                raise wrap(error, str(self._path), BUSY_SECONDS) from error
            has_changed = db.total_changes() != before
        if has_changed:
            self._waiters.wake()
        return done

    def complete(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call of the store to its end without an event loop, and return its result."""
        with self._direct():
            return complete(call)

    @contextmanager
    def _direct(self) -> Iterator[None]:
        self._here.is_direct = True
        try:
            yield
        finally:
            self._here.is_direct = False

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this asyncio task's previous call returned."""
        await self._waiters.wait_for_change(timeout_seconds, lambda: None)

    async def close(self) -> None:
        """Close the file. Safe to repeat; a later call opens it again."""
        self.close_now()

    def close_now(self) -> None:
        """Close the file."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    def end(self) -> None:
        """Close the file for good: what the test left running must not open it again."""
        self.close_now()
        self._is_over = True

    def abandon(self) -> None:
        """Let every later call in an event loop wait until it is cancelled.

        A worker that a task blocked would otherwise try again and again to write, during later tests.
        """
        self._is_abandoned = True

    def _require_usable(self) -> None:
        if self._is_over:
            raise StoreUnavailableError(
                "the test that this store belonged to has ended",
                fix="end what the test started before the test ends",
            )
        if os.getpid() != self._pid:
            forks.leak_connection(self._db)
            self._db, self._pid = None, os.getpid()

    def _connection(self) -> apsw.Connection:
        if self._db is None:
            self._db = connect_privately(self._path)
        return self._db


def connect_privately(path: Path) -> apsw.Connection:
    """Open a file that only this process uses, and that need not survive it.

    Raises:
        apsw.Error: SQLite cannot open the file.
    """
    db = connection.connect(path, busy_seconds=BUSY_SECONDS)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA wal_autocheckpoint = 1000")
    return db


def _written(db: apsw.Connection, work: Work[T], precheck: Precheck[T] | None) -> T:
    """Run work in a transaction of its own, unless its precheck has the result already."""
    if precheck is not None and (found := precheck(db)) is not None:
        return found
    db.execute("BEGIN IMMEDIATE")
    try:
        done = work(db)
        db.execute("COMMIT")
        return done
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
