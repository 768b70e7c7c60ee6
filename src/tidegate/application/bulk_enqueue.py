"""Enqueue many tasks atomically: in one transaction, or as a batch of parts."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Generic, TypeVar

from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import EnqueueResult, NewTask
from tidegate.threads.bridge import run_sync

T = TypeVar("T")
R = TypeVar("R")
"""What an enqueue returns."""

PART_TASKS = 5_000
"""Most tasks in one transaction. A larger enqueue becomes a batch of parts of this size."""


class PartsEnqueue(ABC, Generic[R]):
    """One enqueue of any number of tasks, read from an iterable and stored in parts."""

    def __init__(self, store: Store, batch_id: str) -> None:
        self._store = store
        self._batch_id = batch_id
        self._part: list[NewTask] = []
        self._has_stored_parts = False

    async def store(self, tasks: Iterable[NewTask] | AsyncIterable[NewTask]) -> R:
        """Enqueue all tasks, or none if the iterable or store raises."""
        try:
            if isinstance(tasks, AsyncIterable):
                async for task in tasks:
                    if self._is_full:
                        await self._store_part()
                    self._add(task)
            else:
                for task in tasks:
                    if self._is_full:
                        await self._store_part()
                    self._add(task)
            return await self._commit()
        except BaseException:
            await self._drop_batch()
            raise

    def store_sync(self, tasks: Iterable[NewTask]) -> R:
        """Same as `store`, from sync code. The iterable is read in the caller's thread."""
        try:
            for task in tasks:
                if self._is_full:
                    run_sync(self._store_part())
                self._add(task)
            return run_sync(self._commit())
        except BaseException:
            run_sync(self._drop_batch())
            raise

    @property
    def _is_full(self) -> bool:
        """Whether the present part must be stored before another task is added."""
        return len(self._part) == PART_TASKS

    @abstractmethod
    def _add(self, task: NewTask) -> None:
        """Add a task to the present part."""

    async def _store_part(self) -> None:
        """Store the present part, invisible until the batch is committed, and start the next one."""
        self._has_stored_parts = True
        await self._send_part(self._part)
        self._part = []

    @abstractmethod
    async def _send_part(self, tasks: list[NewTask]) -> None:
        """Store a part of the batch."""

    @abstractmethod
    async def _commit(self) -> R:
        """Make all tasks visible at once; return the result of the enqueue."""

    async def _release(self) -> None:
        """Move the tasks of the committed batch to their queues. Maintenance does what this leaves."""
        self._has_stored_parts = False
        with contextlib.suppress(StoreError):
            while await self._store.release_batches():
                pass

    async def _drop_batch(self) -> None:
        """Drop the batch. If the store cannot be reached, maintenance deletes the batch after a day."""
        if self._has_stored_parts:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._store.drop_batch(self._batch_id))


class BulkEnqueue(PartsEnqueue[list[EnqueueResult]]):
    """One enqueue of many tasks: one transaction if they fit into one part, else a batch of parts.

    `store` returns the results in the order of the tasks.
    """

    def __init__(self, store: Store, batch_id: str) -> None:
        super().__init__(store, batch_id)
        self._ids: list[str] = []

    def _add(self, task: NewTask) -> None:
        self._part.append(task)
        self._ids.append(task.id)

    async def _send_part(self, tasks: list[NewTask]) -> None:
        await self._store.enqueue_part(self._batch_id, tasks)

    async def _commit(self) -> list[EnqueueResult]:
        if not self._has_stored_parts:
            return await self._store.enqueue(self._part) if self._part else []
        await self._store_part()
        existing = await self._store.commit_batch(self._batch_id)
        await self._release()
        return [
            EnqueueResult(existing.get(task_id, task_id), task_id not in existing) for task_id in self._ids
        ]


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield the items of a sync or async iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
