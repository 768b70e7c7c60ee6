"""Noticing commits, this process's and others', without a connection between the processes.

`PRAGMA data_version` on a connection that never writes changes when any other connection commits. One
thread looks every 10 ms, or every 25 ms when nothing has been committed for 2 s, and only while somebody
waits; a commit of this process makes it look at once.
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
"""While nothing happens: each look wakes the processor, and an idle worker should cost next to nothing."""
_LOOKS_AWAKE = 200
_AWAY_SECONDS = 0.1
"""Between two looks while the file cannot be read."""
_STIRRING_LOOKS = 100
_LOOKS_A_QUESTION = 10
_FOR_EVER = -1.0


class SqliteWatcher:
    """Wakes whoever waits for a change.

    Args:
        location: Where the database file is.
    """

    def __init__(self, location: FileLocation) -> None:
        self._look = _ChangeDetector(location)
        self._thread: threading.Thread | None = None
        self._begin_anew()

    @property
    def quiet(self) -> threading.Lock:
        """The lock held while SQLite is at work."""
        return self._look.quiet

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this task's last return, or in time."""
        await self._waiters.wait_for_change(timeout_seconds, self._begin)

    def committed(self) -> None:
        """Look at once: this process has committed something."""
        if self._waiters:
            self._wake_thread()

    def stop(self) -> threading.Thread | None:
        """End the thread and wake whoever waits; return the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wake_thread()
        return thread

    def forget(self) -> None:
        """Begin anew in a forked child."""
        self._look.forget()
        self._begin_anew()

    def _begin_anew(self) -> None:
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
        # A lock used as a bell: an Event would build a lock for each wait, a hundred times a second.
        with suppress(RuntimeError):
            self._bell.release()

    def _work(self) -> None:
        me = threading.current_thread()
        rung = True
        calm_looks = 0
        while self._thread is me:
            pause = _FOR_EVER
            if self._waiters:
                has_changed = self._look.has_changed(surely=rung)
                calm_looks = 0 if has_changed else calm_looks + 1
                pause = POLL_SECONDS if calm_looks < _LOOKS_AWAKE else IDLE_POLL_SECONDS
                if has_changed is None:
                    pause = _AWAY_SECONDS
                elif has_changed:
                    self._waiters.wake()
            rung = self._bell.acquire(timeout=pause)
        self._look.close()
        self._waiters.wake()


class _ChangeDetector:
    """Tells whether the file has changed since the last time, cheaply.

    Asking SQLite takes several system calls, looking at the stamp of the write-ahead log one. A new
    stamp only means that a commit is near: the log is written before the commit is complete, and one
    stamp can stand for two writes. So for a second after it SQLite is asked at every look, and
    else at every tenth in case the stamp tells nothing.
    """

    def __init__(self, location: FileLocation) -> None:
        self.quiet = threading.Lock()
        self._location = location
        self._file = DatabaseFile(location, busy_seconds=1.0)
        self._log = f"{os.path.realpath(location.path)}-wal"
        self._stamp: tuple[int, ...] = ()
        self._version: tuple[int, int] | None = None
        self._looks = 0
        self._stirring_until = 0

    def has_changed(self, *, surely: bool) -> bool | None:
        """Return whether there was a commit since the last look; None if the file cannot be read.

        Args:
            surely: Whether to ask SQLite in any case.
        """
        self._looks += 1
        if not self._location.was_seen:
            return None  # nothing to watch yet, and making the file is not this one's to do
        if not (surely or self._is_stirring() or self._looks % _LOOKS_A_QUESTION == 0):
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
        """Let go of the file."""
        with self.quiet:
            self._file.close()

    def forget(self) -> None:
        """Let go in a forked child."""
        self.quiet = threading.Lock()
        forks.leak_connection(self._file.forget())

    def _is_stirring(self) -> bool:
        try:
            there = os.stat(self._log)  # noqa: PTH116 - a hundred times a second; pathlib doubles the cost
        except OSError:
            return True
        stamp = (there.st_mtime_ns, there.st_size, there.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            self._stirring_until = self._looks + _STIRRING_LOOKS
        return self._looks <= self._stirring_until
