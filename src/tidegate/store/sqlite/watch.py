"""Notice commits of this and other processes, without a connection between the processes.

`PRAGMA data_version` on a connection that never writes changes when any other connection commits. One thread
polls it every 10 ms, or every 25 ms after 2 s without a commit, and only while a task waits. After a commit
of this process it polls at once.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import apsw

from tidegate.errors import TidegateError
from tidegate.store.common.waiters import Waiters
from tidegate.store.sqlite import forks, query
from tidegate.store.sqlite.file import DatabaseFile, FileLocation

POLL_SECONDS = 0.010
IDLE_POLL_SECONDS = 0.025
"""Interval between polls when there was no recent commit. Each poll wakes the processor, and an idle worker
should be cheap."""
_LOOKS_AWAKE = 200
_AWAY_SECONDS = 0.1
"""Interval between polls while the file cannot be read."""
_ACTIVE_CHECKS = 100
_CHECKS_PER_QUERY = 10
_FOR_EVER = -1.0


class SqliteWatcher:
    """Wakes the tasks that wait for a change.

    Args:
        location: Where the database file is.
    """

    def __init__(self, location: FileLocation) -> None:
        self._detector = _ChangeDetector(location)
        self._thread: threading.Thread | None = None
        self._reset()

    @property
    def quiet(self) -> threading.Lock:
        """The lock that is held while SQLite runs."""
        return self._detector.quiet

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return on timeout, or when something may have been committed since this task's last call ended."""
        await self._waiters.wait_for_change(timeout_seconds, self._begin)

    def committed(self) -> None:
        """Poll now: this process has committed something."""
        if self._waiters:
            self._wake_thread()

    def stop(self) -> threading.Thread | None:
        """Stop the thread and wake the waiting tasks; return the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wake_thread()
        return thread

    def forget(self) -> None:
        """Forget threads and connections in a forked child."""
        self._detector.forget()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._thread = None
        self._waiters = Waiters()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tidegate-sqlite-watch", daemon=True)
                self._thread.start()
        self._wake_thread()

    def _wake_thread(self) -> None:
        # A lock serves as the wake-up signal: an Event would create a lock for each wait, 100 times a second.
        with suppress(RuntimeError):
            self._bell.release()

    def _work(self) -> None:
        me = threading.current_thread()
        rung = True
        calm_looks = 0
        while self._thread is me:
            pause = _FOR_EVER
            if self._waiters:
                has_changed = self._detector.has_changed(surely=rung)
                calm_looks = 0 if has_changed else calm_looks + 1
                pause = POLL_SECONDS if calm_looks < _LOOKS_AWAKE else IDLE_POLL_SECONDS
                if has_changed is None:
                    pause = _AWAY_SECONDS
                elif has_changed:
                    self._waiters.wake()
            rung = self._bell.acquire(timeout=pause)
        self._detector.close()
        self._waiters.wake()


class _ChangeDetector:
    """Detects cheaply whether the file has changed since the last check.

    A query to SQLite takes several system calls; reading the time stamp of the write-ahead log takes one. A
    new stamp only means that a commit is near: the log is written before the commit is complete, and two
    writes can have the same stamp. So SQLite is queried at every check for a second after a new stamp, and
    otherwise at every tenth check, in case the stamp does not change.
    """

    def __init__(self, location: FileLocation) -> None:
        self.quiet = threading.Lock()
        self._location = location
        self._file = DatabaseFile(location, busy_seconds=1.0)
        self._log = f"{os.path.realpath(location.path)}-wal"
        self._stamp: tuple[int, ...] = ()
        self._version: tuple[int, int] | None = None
        self._checks = 0
        self._active_until = 0

    def has_changed(self, *, surely: bool) -> bool | None:
        """Return whether there was a commit since the last check; None if the file cannot be read.

        Args:
            surely: Whether to query SQLite even if the time stamp has not changed.
        """
        self._checks += 1
        if not self._location.was_seen:
            return None  # there is no file to watch yet, and the watcher does not create it
        if not (surely or self._is_active() or self._checks % _CHECKS_PER_QUERY == 0):
            return False
        try:
            with self.quiet:
                db = self._file.connection(checked=False)
                version = (self._file.opened, query.value(db, "PRAGMA data_version"))
        except (apsw.Error, OSError, TidegateError):
            return None
        before, self._version = self._version, version
        return version != before

    def close(self) -> None:
        """Close the file."""
        with self.quiet:
            self._file.close()

    def forget(self) -> None:
        """Forget the connection in a forked child."""
        self.quiet = threading.Lock()
        forks.leak_connection(self._file.forget())

    def _is_active(self) -> bool:
        try:
            there = os.stat(self._log)  # noqa: PTH116 - a hundred times a second; pathlib doubles the cost
        except OSError:
            return True
        stamp = (there.st_mtime_ns, there.st_size, there.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            self._active_until = self._checks + _ACTIVE_CHECKS
        return self._checks <= self._active_until
