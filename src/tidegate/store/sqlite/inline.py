"""Run the store's work directly on the caller's thread, for simulations and tests.

Sessions and transactions are the same as in production. But a call does its work before it returns, without
threads or a real clock, so a run under a virtual clock can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from tidegate.store.common.waiters import RECENT_CHANGE_SECONDS
from tidegate.store.sqlite import forks
from tidegate.store.sqlite.file import FileLocation
from tidegate.store.sqlite.job import Job, Mode, Precheck, T, Work
from tidegate.store.sqlite.session import JobSession
from tidegate.store.sqlite.writer import BUSY_SECONDS

_Listeners = WeakValueDictionary[int, "InlineRunner"]

_by_path: WeakValueDictionary[Path, _Listeners] = WeakValueDictionary()
"""The runners of each file in the order they were created, so that commits wake them in that order."""

_numbers = itertools.count()


class InlineRunner:
    """Does the work of each call directly. Runners of one file in one process wake each other after a commit.

    Args:
        path: The database file.
        busy_seconds: How long a call waits for a writer of another process, by the real clock.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._busy_seconds = busy_seconds
        self._session = JobSession(FileLocation(path), busy_seconds=busy_seconds)
        self._pid = os.getpid()
        self._changes = 0
        self._changed_at = -math.inf
        self._seen_changes: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._waiters: dict[asyncio.Future[None], None] = {}
        """In the order in which they were added. A set would wake them in another order in each run."""
        self._listeners = _by_path.setdefault(path.absolute(), WeakValueDictionary())
        self._listeners[next(_numbers)] = self

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Do `work` now. Other coroutines run before it returns."""
        if os.getpid() != self._pid:
            forks.leak_connection(self._session.forget())
            self._pid = os.getpid()
        job = Job(work, mode, precheck=precheck, expires_at=time.monotonic() + self._busy_seconds)
        before = self._session.commits
        if mode is Mode.READ:
            self._session.read([job])
        elif mode is Mode.WRITE:
            self._session.write([job])
        else:
            self._session.bare(job)
        if self._session.commits != before:
            for runner in list(self._listeners.values()):
                runner.committed()
        await asyncio.sleep(0)
        if job.error is not None:
            raise job.error
        return job.value  # type: ignore[return-value]

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this asyncio task's previous call returned."""
        caller = asyncio.current_task()
        assert caller is not None
        loop = asyncio.get_running_loop()
        is_recent = loop.time() - self._changed_at < RECENT_CHANGE_SECONDS
        if self._seen_changes.get(caller, -1 if is_recent else self._changes) == self._changes:
            await self._next_commit(timeout_seconds)
        else:
            await asyncio.sleep(0)
        self._seen_changes[caller] = self._changes

    async def _next_commit(self, timeout_seconds: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter
        except TimeoutError:
            return
        finally:
            del self._waiters[waiter]

    async def close(self) -> None:
        """Close the file. Safe to repeat; a later `run` opens it again."""
        self._session.close()

    def committed(self) -> None:
        """Wake the waiting tasks: this or another runner of the file has committed something."""
        self._changes += 1
        self._changed_at = asyncio.get_running_loop().time()
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)
