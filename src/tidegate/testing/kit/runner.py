"""Runs the work of the test store at once, in the caller's thread, for any threads and event loops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidegate.errors import StoreUnavailableError
from tidegate.store.common.waiters import Waiters
from tidegate.store.sqlite import forks
from tidegate.store.sqlite.file import FileLocation
from tidegate.store.sqlite.job import Job, Mode, Precheck, T, Work
from tidegate.store.sqlite.session import JobSession
from tidegate.store.sqlite.work import complete
from tidegate.store.sqlite.writer import BUSY_SECONDS


class KitRunner:
    """Does each call at once: a test's store is small, and a thread of its own would only cost time.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session = JobSession(FileLocation(path), busy_seconds=BUSY_SECONDS)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._here = threading.local()
        self._is_over = False

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` now. Other coroutines of the loop run before this returns."""
        done = self.run_now(work, mode, precheck=precheck)
        if not getattr(self._here, "is_direct", False):
            await asyncio.sleep(0)
        return done

    def run_now(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` now and return its result.

        Raises:
            StoreUnavailableError: The test has ended.
        """
        job = Job(work, mode, precheck=precheck, expires_at=time.monotonic() + BUSY_SECONDS)
        with self._lock:
            self._require_usable()
            before = self._session.commits
            if mode is Mode.READ:
                self._session.read([job])
            elif mode is Mode.WRITE:
                self._session.write([job])
            else:
                self._session.bare(job)
            has_changed = self._session.commits != before
        if has_changed:
            self._waiters.wake()
        if job.error is not None:
            raise job.error
        return job.value  # type: ignore[return-value]

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
        """Return when something may have been committed since the calling asyncio task's last return."""
        await self._waiters.wait_for_change(timeout_seconds, lambda: None)

    async def close(self) -> None:
        """Close the file. Safe to repeat; a later call opens it again."""
        self.close_now()

    def close_now(self) -> None:
        """Close the file."""
        with self._lock:
            self._session.close()

    def end(self) -> None:
        """Close the file for good: what the test left running must not open it again."""
        self.close_now()
        self._is_over = True

    def _require_usable(self) -> None:
        if self._is_over:
            raise StoreUnavailableError(
                "the test that this store belonged to has ended",
                fix="end what the test started before the test ends",
            )
        if os.getpid() != self._pid:
            forks.leak_connection(self._session.forget())
            self._pid = os.getpid()
