"""Watches tasks for all callers of an event loop, with one read of the store for all callers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.domain.states import FINAL, State
from tidegate.errors import TaskNotFoundError
from tidegate.store.streams import StoredChunk, StreamHead

if TYPE_CHECKING:
    from tidegate.store.protocol import Store

MIN_POLL_SECONDS = 0.02
"""The least time between two reads, so that a busy store is not read after each commit."""
MAX_POLL_SECONDS = 1.0
"""The longest time between two reads, in case a notification is missed."""
TASKS_PER_READ = 500
"""The most tasks in one read."""
PART_CHUNKS = 100
"""The most chunks of one task in one read."""
PART_BYTES = 131_072
"""The most bytes of chunks in one read for one follower, exceeded by at most one chunk. A follower holds no
more."""
READ_BYTES = 1_048_576
"""The most bytes of chunks in one read for all followers."""
CACHED_CHUNKS = 64
"""The most cached chunks of a followed task. A follower that is further behind reads from the store."""
CACHED_BYTES = 262_144
"""The most bytes of cached chunks of a followed task."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The task's state or run changed."""

    state: State
    run: int


@dataclass(frozen=True, slots=True)
class ProgressChanged:
    """The task reported progress."""

    done: float
    total: float | None
    note: str


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The follower wanted to resume after a chunk that does not exist. The whole stream follows."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The task is final and all its chunks were sent. Always the last event."""

    state: State
    run: int


TaskEvent = StoredChunk | StateChanged | ProgressChanged | StreamReset | StreamEnded


@dataclass(slots=True)
class _FollowedTask:
    """The watcher's state of a followed task."""

    head: StreamHead | None = None
    poll: int = 0
    """The number of the poll that read `head`; a poll that started earlier does not overwrite `head`."""
    cached: deque[StoredChunk] = field(default_factory=deque)
    followers: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    cached_bytes: int = 0

    def keep(self, chunks: Sequence[StoredChunk], known: int) -> None:
        """Cache the chunks after number `known`; drop the oldest if there are too many."""
        last = self.cached[-1].sequence if self.cached else known
        if last != known:  # a gap, or another poll cached them first
            self.cached.clear()
            self.cached_bytes = 0
        self.cached.extend(chunks)
        self.cached_bytes += sum(len(chunk.data) for chunk in chunks)
        while len(self.cached) > CACHED_CHUNKS or self.cached_bytes > CACHED_BYTES:
            self.cached_bytes -= len(self.cached.popleft().data)

    def after(self, sequence: int) -> list[StoredChunk]:
        """Return cached chunks after this number; none if the next one is not cached."""
        if not self.cached or self.cached[0].sequence > sequence + 1:
            return []
        part: list[StoredChunk] = []
        size = 0
        for chunk in self.cached:
            if chunk.sequence > sequence and size < PART_BYTES:
                part.append(chunk)
                size += len(chunk.data)
        return part


class TaskWatcher:
    """Notifies waiters and followers of changes to tasks. Belongs to one event loop.

    Args:
        store: An open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._followed: dict[str, _FollowedTask] = {}
        self._polls = 0
        self._job: asyncio.Task[None] | None = None

    async def final(self, task_id: str) -> None:
        """Return once the task is final or deleted."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, set()).add(future)
        self._start_polling()
        try:
            await future
        finally:
            self._forget(task_id, future)

    async def follow(self, task_id: str, after: int = 0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the events of a task from its present state to its end. Close the generator when done.

        The state in which a run ended comes after the last chunk of that run, also for late followers. No
        events are queued for a follower: a slow follower holds about `PART_BYTES` and reads the rest later.

        Args:
            task_id: The task's id.
            after: Number of the last chunk that the follower has; 0 for the whole stream.

        Raises:
            TaskNotFoundError: The task does not exist or was deleted.
        """
        async with contextlib.aclosing(self.follow_in_batches(task_id, after)) as parts:
            async for part in parts:
                for event in part:
                    yield event

    async def follow_in_batches(
        self, task_id: str, after: int = 0, *, idle_seconds: float | None = None
    ) -> AsyncGenerator[list[TaskEvent], None]:
        """Same as `follow`, in batches; yield an empty batch after `idle_seconds` without an event."""
        followed = self._followed.setdefault(task_id, _FollowedTask())
        followed.followers += 1
        try:
            await self._poll([task_id])
            seen: StreamHead | None = None
            state_and_run: tuple[State, int] | None = None
            while seen is None or seen.state not in FINAL:
                head = await self._next_head(task_id, followed, seen, idle_seconds)
                if head is None:
                    yield []
                    continue
                part: list[TaskEvent] = []
                if seen is None and after > head.last_sequence:
                    part, after = [StreamReset()], 0
                if seen is None and head.state not in FINAL:
                    part.append(StateChanged(*(state_and_run := _state_and_run(head))))
                while after < head.last_sequence:
                    read = await self._next_chunks(task_id, followed, after)
                    chunks = [chunk for chunk in read if chunk.sequence <= head.last_sequence]
                    part += _with_run_starts(chunks, 0 if state_and_run is None else state_and_run[1])
                    if state_and_run is None or chunks[-1].run > state_and_run[1]:
                        state_and_run = State.RUNNING, chunks[-1].run
                    after = chunks[-1].sequence
                    yield part
                    part = []
                part += _events_after_chunks(head, seen, is_state_sent=state_and_run == _state_and_run(head))
                seen, state_and_run = head, _state_and_run(head)
                if part:
                    yield part
        finally:
            followed.followers -= 1
            if not followed.followers:
                self._followed.pop(task_id, None)

    async def _next_head(
        self, task_id: str, followed: _FollowedTask, seen: StreamHead | None, idle_seconds: float | None
    ) -> StreamHead | None:
        """Return the task's head once it differs from `seen`; None after `idle_seconds`."""
        if followed.head is not None and followed.head == seen:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            followed.waiting.add(future)
            self._start_polling()
            timer = None if idle_seconds is None else loop.call_later(idle_seconds, _wake, (future,))
            try:
                await future
            finally:
                followed.waiting.discard(future)
                if timer is not None:
                    timer.cancel()
        if followed.head is None:
            raise TaskNotFoundError(f"no task has the id {task_id}", fix="check the id", task_id=task_id)
        return None if followed.head == seen else followed.head

    async def _next_chunks(self, task_id: str, followed: _FollowedTask, after: int) -> list[StoredChunk]:
        """Return the next chunks after this number. The caller knows that there are some."""
        cached_chunks = followed.after(after)
        if cached_chunks:
            return cached_chunks
        found = await self._store.read_chunks({task_id: after}, limit=PART_CHUNKS, max_bytes=PART_BYTES)
        if task_id not in found:
            raise TaskNotFoundError(
                f"task {task_id} was deleted", fix="nothing is left to follow", task_id=task_id
            )
        return found[task_id]

    # --- the polling loop --------------------------------------------------------------------------------

    def _start_polling(self) -> None:
        if self._job is None:
            self._job = asyncio.create_task(self._poll_loop(), name="tidegate task watcher")

    async def _poll_loop(self) -> None:
        """Poll the store until no caller waits any more."""
        try:
            while ids := [
                *self._waiting,
                *(task for task, followed in self._followed.items() if followed.followers),
            ]:
                for begin in range(0, len(ids), TASKS_PER_READ):
                    await self._poll(ids[begin : begin + TASKS_PER_READ])
                if self._waiting or self._followed:
                    await self._store.wait_for_change(MAX_POLL_SECONDS)
                    await asyncio.sleep(MIN_POLL_SECONDS)
        except Exception as error:  # otherwise the waiting callers would wait for ever
            self._fail_all(error)
        finally:
            self._job = None  # a finished asyncio task would keep its loop alive, and the loop this watcher

    async def _poll(self, ids: Iterable[str]) -> None:
        """Read the heads and new chunks of these tasks, and wake the callers that wait for them."""
        self._polls += 1
        poll, ids = self._polls, list(ids)
        heads = await self._store.read_stream_heads(ids)
        await self._read_new_chunks({task_id: heads[task_id] for task_id in ids if task_id in heads})
        for task_id in ids:
            head = heads.get(task_id)
            if head is None or head.state in FINAL:
                self._wake_waiting(task_id)
            followed = self._followed.get(task_id)
            if followed is not None and poll > followed.poll:
                has_changed = head != followed.head
                followed.head, followed.poll = head, poll
                if has_changed:
                    _wake(followed.waiting)

    async def _read_new_chunks(self, heads: dict[str, StreamHead]) -> None:
        """Read the new chunks of followed tasks once, for all their followers."""
        known = {
            task_id: followed.head.last_sequence
            for task_id, followed in self._followed.items()
            if followed.head is not None
            and task_id in heads
            and followed.head.last_sequence < heads[task_id].last_sequence
        }
        if not known:
            return
        found = await self._store.read_chunks(known, limit=PART_CHUNKS, max_bytes=READ_BYTES)
        for task_id, chunks in found.items():
            if (followed := self._followed.get(task_id)) is not None:
                followed.keep(chunks, known[task_id])

    def _wake_waiting(self, task_id: str) -> None:
        _wake(self._waiting.pop(task_id, set()))

    def _fail_all(self, error: Exception) -> None:
        groups = [*self._waiting.values(), *(followed.waiting for followed in self._followed.values())]
        self._waiting = {}
        for futures in groups:
            for future in list(futures):
                if not future.done():
                    future.set_exception(error)

    def _forget(self, task_id: str, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(task_id)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[task_id]


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in list(futures):
        if not future.done():
            future.set_result(None)


def _state_and_run(head: StreamHead) -> tuple[State, int]:
    return head.state, head.run


def _with_run_starts(chunks: Sequence[StoredChunk], run: int) -> list[TaskEvent]:
    """Return the chunks, with a `StateChanged` before the first chunk of each run after `run`."""
    events: list[TaskEvent] = []
    for chunk in chunks:
        if chunk.run > run:
            run = chunk.run
            events.append(StateChanged(State.RUNNING, run))
        events.append(chunk)
    return events


def _events_after_chunks(
    head: StreamHead, seen: StreamHead | None, *, is_state_sent: bool
) -> list[TaskEvent]:
    """Return the events that come after the chunks."""
    events: list[TaskEvent] = [] if is_state_sent else [StateChanged(head.state, head.run)]
    progress = _progress(head)
    if progress is not None and progress != _progress(seen):
        events.append(progress)
    if head.state in FINAL:
        events.append(StreamEnded(head.state, head.run))
    return events


def _progress(head: StreamHead | None) -> ProgressChanged | None:
    if head is None or head.progress_done is None:
        return None
    return ProgressChanged(head.progress_done, head.progress_total, head.progress_note)
