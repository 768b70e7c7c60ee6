"""A handle on one stored task. `enqueue` returns it, and `app.handle(task_id)` makes one from an id."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from tidegate.domain.final_result import FinalResult
from tidegate.domain.ids import TaskReference
from tidegate.domain.moments import to_datetime
from tidegate.domain.readers import Seconds, seconds_option
from tidegate.domain.states import State
from tidegate.errors import (
    DataRemovedError,
    ResultTimeoutError,
    TaskCancelledError,
    TaskFailedError,
    TaskNotFoundError,
    UsageError,
)
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.store.streams import StoredChunk
from tidegate.threads.bridge import run_sync
from tidegate.values import Chunk, HistoryEntry, TaskStatus, history_entry, task_status

if TYPE_CHECKING:
    from tidegate.store.protocol import Store
    from tidegate.store.rows import CancelStatus, StoredResult

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


def require_timeout(method: Callable[P, T]) -> Callable[P, T]:
    """Make a sync method refuse a call without its last parameter, `timeout`, with a clear error."""
    names = method.__code__.co_varnames[: method.__code__.co_argcount]

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        timeout = args[len(names) - 1] if len(args) >= len(names) else kwargs.get("timeout")
        if timeout is None:
            raise UsageError(
                "result_sync() needs a timeout: without one it may block its thread for ever",
                fix="write result_sync(timeout=30)",
            )
        return method(*args, **kwargs)

    return checked


class StoreSource(Protocol):
    """Gives access to the store."""

    async def opened_store(self) -> Store:
        """Return the store, opened."""
        ...

    def task_watcher(self, store: Store) -> TaskWatcher:
        """Return the running loop's watcher of tasks."""
        ...


class Handle(TaskReference, Generic[R_co]):
    """One stored task. Cheap to make, safe to keep, tied to no event loop."""

    __slots__ = ("_decode", "_source", "created")

    def __init__(
        self,
        task_id: str,
        source: StoreSource,
        decode: Callable[[bytes], Any],
        *,
        created: bool | None = None,
    ) -> None:
        self.id = task_id
        """The `task_id`: a UUIDv7 as text."""
        self.created = created
        """False if a task with the same key or unique name already existed; None if made from an id."""
        self._source = source
        self._decode = decode

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    async def status(self) -> TaskStatus:
        """Return the task's state and progress.

        Raises:
            TaskNotFoundError: No such task, or its retention time is over.
        """
        rows = await (await self._source.opened_store()).read_tasks([self.id])
        if self.id not in rows:
            raise TaskNotFoundError(
                f"no task has the id {self.id}",
                fix="check the id; finished tasks are deleted after 7 days",
                task_id=self.id,
            )
        return task_status(rows[self.id])

    async def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait until the task ends and return its result, decoded by the function's annotation.

        Args:
            timeout: Seconds, a timedelta, or text such as `30s`; None waits without a limit, 0 checks
                once.

        Raises:
            OptionError: The timeout is not a duration.
            ResultTimeoutError: The task is not final in time. It continues.
            TaskFailedError: It is dead.
            TaskCancelledError: It was cancelled.
            TaskNotFoundError: No such task.
        """
        seconds = None if timeout in (None, math.inf) else seconds_option("timeout", timeout)
        store = await self._source.opened_store()
        stored = await wait_until_final(store, self._source.task_watcher(store), self.id, seconds)
        return self._value_of(stored)

    async def _ended(self) -> FinalResult[R_co] | None:
        """Return the result or the error of the task if it is final; None if it can still run."""
        store = await self._source.opened_store()
        try:
            stored = await store.get_result(self.id)
            return None if stored is None else FinalResult(self._value_of(stored), None)
        except (TaskFailedError, TaskNotFoundError, DataRemovedError) as error:
            return FinalResult(None, error)

    def _value_of(self, stored: StoredResult) -> R_co:
        if stored.state is State.SUCCEEDED:
            value: R_co = self._decode(stored.data)
            return value
        if stored.state is State.CANCELLED:
            raise TaskCancelledError(f"task {self.id} was cancelled", task_id=self.id)
        raise TaskFailedError(
            f"task {self.id} is dead: {stored.reason}: {stored.error_class} {stored.message}".rstrip(),
            fix=f"see `tidegate tasks show {self.id}`",
            task_id=self.id,
            reason=stored.reason,
            error_class=stored.error_class,
            error_message=stored.message,
        )

    async def stream(self, after: int = 0) -> AsyncIterator[Chunk]:
        """Yield the task's chunks as they arrive, from the first one to the end of the task.

        Ends when the task is final, with any outcome; `result()` returns the outcome. If the task runs again,
        the new run's chunks follow the old run's. `chunk.run` shows which run emitted a chunk.

        Args:
            after: Number of the last chunk that the caller has; 0 for the whole stream.

        Raises:
            TaskNotFoundError: No such task.
        """
        async with contextlib.aclosing(self._chunks(after)) as parts:
            async for part in parts:
                for chunk in part:
                    yield chunk

    async def _chunks(self, after: int) -> AsyncGenerator[list[Chunk], None]:
        """Yield the chunks after this number, each time all that are available."""
        from tidegate.codec import decode

        watch = self._source.task_watcher(await self._source.opened_store())
        async with contextlib.aclosing(watch.follow_in_batches(self.id, after)) as parts:
            async for part in parts:
                yield [
                    Chunk(event.sequence, event.run, to_datetime(event.at), decode(event.data, path="chunk"))
                    for event in part
                    if isinstance(event, StoredChunk)
                ]

    async def cancel(self, why: str = "", *, force: bool = False) -> CancelStatus:
        """Cancel the task, in any state.

        A waiting task is cancelled at once. A running task is asked to stop and never runs again. If its
        function returns first, the task stays succeeded.

        Args:
            why: Kept in the history.
            force: Do not wait for a function that ignores the request: its child process is killed, or its
                coroutine or thread is abandoned.
        """
        answers = await (await self._source.opened_store()).cancel([self.id], why=why, force=force)
        return answers[self.id]

    async def history(self) -> list[HistoryEntry]:
        """Return every run of the task and every action on it, oldest first."""
        return [history_entry(row) for row in await (await self._source.opened_store()).get_history(self.id)]

    def status_sync(self) -> TaskStatus:
        """Same as `status`, from sync code."""
        return run_sync(self.status())

    @require_timeout
    def result_sync(self, timeout: Seconds) -> R_co:
        """Same as `result`, from sync code, where the timeout must be given.

        Raises:
            UsageError: No timeout: a sync caller that waits for ever holds its thread for ever.
        """
        return run_sync(self.result(timeout))

    def stream_sync(self, after: int = 0) -> Iterator[Chunk]:
        """Same as `stream`, from sync code: each step blocks until the next chunk or the end of the task."""
        parts = self._chunks(after)
        try:
            while (part := run_sync(anext(parts, None))) is not None:
                yield from part
        finally:
            with contextlib.suppress(UsageError):  # closed at a moment when nothing can be awaited
                run_sync(parts.aclose())

    def cancel_sync(self, why: str = "", *, force: bool = False) -> CancelStatus:
        """Same as `cancel`, from sync code."""
        return run_sync(self.cancel(why, force=force))

    def history_sync(self) -> list[HistoryEntry]:
        """Same as `history`, from sync code."""
        return run_sync(self.history())


async def wait_until_final(
    store: Store, watch: TaskWatcher, task_id: str, timeout: float | None
) -> StoredResult:
    """Return the result row of a task once it is final.

    Raises:
        ResultTimeoutError: Not final within `timeout` seconds.
        TaskNotFoundError: No such task.
    """
    import asyncio

    ends_at = None if timeout is None else asyncio.get_running_loop().time() + timeout
    while (stored := await store.get_result(task_id)) is None:
        try:
            async with asyncio.timeout_at(ends_at):
                await watch.final(task_id)  # later a dead task may be redriven
        except TimeoutError:
            stored = await store.get_result(task_id)
            break
    if stored is None:
        raise ResultTimeoutError(
            f"task {task_id} is not final after {timeout or 0:g} s",
            fix=f"it continues, so ask again; `tidegate tasks why {task_id}` shows what it waits for",
            task_id=task_id,
            seconds=timeout or 0.0,
        )
    return stored
