"""Noticing commits, this process's and others', without a connection between the processes.

`PRAGMA data_version` on a connection that never writes changes when any other connection commits. One
thread asks it every 10 ms, only while somebody waits; a commit of this process makes it ask at once.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import apsw

from tidegate.errors import TidegateError
from tidegate.store.sqlite import forks
from tidegate.store.sqlite.file import DatabaseFile

POLL_SECONDS = 0.010
_AWAY_SECONDS = 0.1
"""Between two polls while the file cannot be read."""
_LONGEST_WAIT_SECONDS = 86_400.0


class Watch:
    """Wakes whoever waits for a change.

    Level-triggered by asyncio task: each remembers which change it was last told of, so that one between
    two calls ends the second at once. The first call of a task returns at once, since what it read
    before may be old already.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self._file = DatabaseFile(path, busy_seconds=1.0)
        self._thread: threading.Thread | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._told: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._version: tuple[int, int] | None = None
        self._begin_anew()

    async def changed(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this task's last return, or in time."""
        caller = asyncio.current_task()
        assert caller is not None
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        if not self._enlist(caller, waiter):
            await asyncio.sleep(0)
            return
        timer = loop.call_later(min(timeout_seconds, _LONGEST_WAIT_SECONDS), _end, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            with self._lock:
                self._waiters.discard(waiter)
                self._told[caller] = self._changes

    def committed(self) -> None:
        """Ask at once: this process has committed something."""
        if self._waiters:
            self._ring()

    def stop(self) -> threading.Thread | None:
        """End the thread and wake whoever waits; return the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._ring()
        return thread

    def forget(self) -> None:
        """Begin anew in a forked child."""
        forks.never_close(self._file.forget())
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.quiet = threading.Lock()
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._thread = None
        self._waiters = set()
        self._told = WeakKeyDictionary()
        self._changes = 0
        self._version = None

    def _enlist(self, caller: asyncio.Task[Any], waiter: asyncio.Future[None]) -> bool:
        """Add a waiter; False if its task has not heard of the latest change."""
        with self._lock:
            if self._told.get(caller) != self._changes:
                self._told[caller] = self._changes
                return False
            self._waiters.add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tidegate-sqlite-watch", daemon=True)
                self._thread.start()
        self._ring()
        return True

    def _ring(self) -> None:
        # A lock used as a bell: an Event would build a lock for each wait, a hundred times a second.
        with suppress(RuntimeError):
            self._bell.release()

    def _work(self) -> None:
        me = threading.current_thread()
        while self._thread is me:
            pause = self._poll() if self._waiters else -1.0
            self._bell.acquire(timeout=pause)
        with self.quiet:
            self._file.close()
        self._wake()

    def _poll(self) -> float:
        """Look once and wake whoever waits if something changed; return the seconds until the next look."""
        try:
            with self.quiet:
                db = self._file.connection(checked=False)
                version = (id(db), db.pragma("data_version"))
        except (apsw.Error, OSError, TidegateError):
            return _AWAY_SECONDS
        if version != self._version:
            self._version = version
            self._wake()
        return POLL_SECONDS

    def _wake(self) -> None:
        with self._lock:
            self._changes += 1
            waiters = list(self._waiters)
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for waiter in waiters:
            by_loop.setdefault(waiter.get_loop(), []).append(waiter)
        for loop, mine in by_loop.items():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_end_all, mine)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _end_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _end(waiter)
