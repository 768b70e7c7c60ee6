"""Run the store's work: on its own threads in production (`WriterThread`)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from tidegate.store.sqlite import forks
from tidegate.store.sqlite.errors import busy
from tidegate.store.sqlite.file import FileLocation
from tidegate.store.sqlite.job import Job, Mode, Precheck, T, Work
from tidegate.store.sqlite.session import JobSession
from tidegate.store.sqlite.watch import SqliteWatcher

BUSY_SECONDS = 30.0
"""Default time that a call waits to begin before it fails."""


class JobRunner(Protocol):
    """Runs the work of store methods, on its own threads or on the caller's."""

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` on a connection; return its result once it is committed.

        `precheck`, if given, runs first, in a snapshot without the write lock. If it returns a value other
        than None, that value is the result, and `work` is not run.

        Raises:
            StoreBusyError: The work could not begin in time; nothing was written.
            StoreUnavailableError: The file cannot be used.
        """

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this asyncio task's previous call returned."""

    async def close(self) -> None:
        """Finish queued work and release everything. Safe to repeat; a later `run` starts again."""


class WriterThread:
    """Two threads: one does all queued writes as one group commit, the other does reads.

    Reads have their own thread and connection, so that a status query does not wait for another process's
    write. Results are delivered after the commit, with one wake-up per event loop and group. Several event
    loops and threads may use it at the same time. In a forked child it restarts.

    Args:
        path: The database file.
        busy_seconds: How long a call may wait to begin.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._busy_seconds = busy_seconds
        self._path = str(path)
        location = FileLocation(path)
        self._watch = SqliteWatcher(location)
        self._writer = _JobThread(
            "tidegate-sqlite-writer", JobSession(location, busy_seconds=busy_seconds), self._watch
        )
        self._reader = _JobThread(
            "tidegate-sqlite-reader", JobSession(location, busy_seconds=busy_seconds), self._watch
        )
        self._pid = os.getpid()
        forks.enter(self)

    async def run(self, work: Work[T], mode: Mode = Mode.READ, *, precheck: Precheck[T] | None = None) -> T:
        """Run `work` on a connection; return its result once it is committed."""
        self._notice_fork()
        loop = asyncio.get_running_loop()
        job = _AwaitedJob(
            work, mode, precheck=precheck, expires_at=time.monotonic() + self._busy_seconds, loop=loop
        )
        (self._reader if mode is Mode.READ else self._writer).put(job)
        timer = loop.call_later(self._busy_seconds, job.abandon, self._busy_seconds, self._path)
        try:
            return await job.future
        except asyncio.CancelledError:
            job.take()
            raise
        finally:
            timer.cancel()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since this asyncio task's previous call returned."""
        self._notice_fork()
        await self._watch.wait_for_change(timeout_seconds)

    async def close(self) -> None:
        """Finish queued work and release everything. Safe to repeat; a later `run` starts again."""
        self._notice_fork()
        stopping = [part.stop() for part in (self._writer, self._reader, self._watch)]
        for thread in stopping:
            if thread is not None:
                await asyncio.to_thread(thread.join, self._busy_seconds)

    def quiet_locks(self) -> list[threading.Lock]:
        """Return the locks held while SQLite runs."""
        return [self._writer.session.quiet, self._reader.session.quiet, self._watch.quiet]

    def forget(self) -> None:
        """Forget threads and connections in a forked child."""
        self._pid = os.getpid()
        for part in (self._writer, self._reader, self._watch):
            part.forget()

    def _notice_fork(self) -> None:
        """Detect a fork that did not run Python's fork hooks."""
        if os.getpid() != self._pid:
            self.forget()


class _AwaitedJob(Job[T]):
    """A job whose result a coroutine awaits."""

    __slots__ = ("future", "loop")

    def __init__(
        self,
        work: Work[T],
        mode: Mode,
        *,
        precheck: Precheck[T] | None,
        expires_at: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(work, mode, precheck=precheck, expires_at=expires_at)
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()

    def abandon(self, busy_seconds: float, path: str) -> None:
        """Fail the job unless it has begun. Called on the event loop of the caller."""
        if self.take() and not self.future.done():
            self.future.set_exception(busy(busy_seconds, path))

    def deliver(self) -> None:
        """Set the future's value or error. Called on the event loop of the caller."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)  # type: ignore[arg-type]


class _JobThread:
    """A queue of calls and the thread that runs them."""

    def __init__(self, name: str, session: JobSession, watch: SqliteWatcher) -> None:
        self.session = session
        self._name = name
        self._watch = watch
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None
        self._queue: SimpleQueue[_AwaitedJob[Any] | None] = SimpleQueue()
        self._starting = threading.Lock()

    def put(self, call: _AwaitedJob[Any]) -> None:
        """Queue a call; the first call starts the thread."""
        with self._starting:
            self._queue.put(call)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, args=(self._queue, self._last), name=self._name, daemon=True
                )
                self._thread.start()

    def stop(self) -> threading.Thread | None:
        """Ask the thread to stop once its queue is empty; return it."""
        with self._starting:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._last = thread
                self._queue.put(None)
                self._queue = SimpleQueue()
            return thread

    def forget(self) -> None:
        """Reset in a forked child: the thread does not exist there, and the queued calls are the parent's."""
        forks.leak_connection(self.session.forget())
        self._thread = self._last = None
        self._queue = SimpleQueue()
        self._starting = threading.Lock()

    def _work(self, queue: SimpleQueue[_AwaitedJob[Any] | None], last: threading.Thread | None) -> None:
        if last is not None:
            last.join()  # one thread at a time uses the session
        left: list[_AwaitedJob[Any]] = []
        going = True
        while left or going:
            # A separate method, so that no reference to a call is kept while the thread waits for the next.
            left, going = self._round(queue, left, going)
        self.session.close()

    def _round(
        self, queue: SimpleQueue[_AwaitedJob[Any] | None], left: list[_AwaitedJob[Any]], going: bool
    ) -> tuple[list[_AwaitedJob[Any]], bool]:
        """Run all queued calls; return the calls that are left, and whether to continue."""
        found: list[_AwaitedJob[Any] | None] = [*left] if left else [queue.get()]
        found += _drained(queue)
        calls = [call for call in found if call is not None]
        left = []
        try:
            self._do(calls, queue, left)
        except Exception as error:
            # No error is expected here. If there is one, every caller still gets a result.
            _deliver(_failed(calls, error))
        return left, going and None not in found

    def _do(
        self,
        calls: Sequence[_AwaitedJob[Any]],
        queue: SimpleQueue[_AwaitedJob[Any] | None],
        left: list[_AwaitedJob[Any]],
    ) -> None:
        """Run these calls. Writes that arrive meanwhile join the group; other calls go to `left`."""
        reads = [call for call in calls if call.mode is Mode.READ]
        if reads:
            self.session.read(reads)
            _deliver(reads)
        writes = [call for call in calls if call.mode is Mode.WRITE]
        if writes:
            before = self.session.commits
            done = self.session.write(writes, lambda: _writes_of(queue, left))
            if self.session.commits != before:
                self._watch.committed()
            _deliver(done)
        for call in calls:
            if call.mode is Mode.BARE:
                self.session.bare(call)
                _deliver([call])


def _writes_of(
    queue: SimpleQueue[_AwaitedJob[Any] | None], left: list[_AwaitedJob[Any]]
) -> list[_AwaitedJob[Any]]:
    """Take the writes out of the queue. Other calls go to `left`, a stop request goes back."""
    found: list[_AwaitedJob[Any]] = []
    for call in _drained(queue):
        if call is None:
            queue.put(None)
        elif call.mode is Mode.WRITE:
            found.append(call)
        else:
            left.append(call)
    return found


def _failed(calls: Sequence[_AwaitedJob[Any]], error: Exception) -> Sequence[_AwaitedJob[Any]]:
    for call in calls:
        call.error = call.error or error
    return calls


def _drained(queue: SimpleQueue[_AwaitedJob[Any] | None]) -> list[_AwaitedJob[Any] | None]:
    found: list[_AwaitedJob[Any] | None] = []
    try:
        while True:
            found.append(queue.get_nowait())
    except Empty:
        return found


def _deliver(calls: Iterable[Any]) -> None:
    """Wake each event loop once for all its calls. A loop that has been closed is skipped."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_AwaitedJob[Any]]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(_hand_out, mine)
        except RuntimeError:
            continue


def _hand_out(calls: Sequence[_AwaitedJob[Any]]) -> None:
    for call in calls:
        call.deliver()
