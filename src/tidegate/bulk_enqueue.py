"""An enqueue of many tasks: one transaction if one part is all, else staged part by part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TypeVar

from tidegate._bridge import run_sync
from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import EnqueueResult, NewTask

T = TypeVar("T")

PART_TASKS = 5_000
"""Tasks in one transaction of an enqueue; larger ones are staged in parts of this size."""


class BulkEnqueue:
    """An enqueue of many under way: one transaction if one part is all, else staged part by part."""

    def __init__(self, store: Store, batch_id: str) -> None:
        self._store = store
        self._batch_id = batch_id
        self._ids: list[str] = []
        self.task_kinds: set[tuple[str, str]] = set()
        """Queue and function of the tasks, each once."""
        self._part: list[NewTask] = []
        self._has_stored_parts = False

    async def store(self, tasks: Iterable[NewTask] | AsyncIterable[NewTask]) -> list[EnqueueResult]:
        """Store all of these tasks, or none if one of them cannot be had; answer in their order."""
        try:
            async for task in each(tasks):
                if self._is_full:
                    await self._store_part()
                self._add(task)
            return await self._commit_batch()
        except BaseException:
            await self._drop_batch()
            raise

    def store_sync(self, tasks: Iterable[NewTask]) -> list[EnqueueResult]:
        """As `store`, from sync code. The iterable is read in the caller's thread."""
        try:
            for task in tasks:
                if self._is_full:
                    run_sync(self._store_part())
                self._add(task)
            return run_sync(self._commit_batch())
        except BaseException:
            run_sync(self._drop_batch())
            raise

    @property
    def _is_full(self) -> bool:
        """Whether the present part must be staged before another task is added."""
        return len(self._part) == PART_TASKS

    def _add(self, task: NewTask) -> None:
        self._part.append(task)
        self.task_kinds.add((task.queue, task.function))
        self._ids.append(task.id)

    async def _store_part(self) -> None:
        """Store the present part where nothing can see it yet, and begin another."""
        self._has_stored_parts = True
        await self._store.enqueue_part(self._batch_id, self._part)
        self._part = []

    async def _commit_batch(self) -> list[EnqueueResult]:
        """Make everything visible at once; answer in the order of the tasks."""
        if not self._has_stored_parts:
            return await self._store.enqueue(self._part) if self._part else []
        await self._store_part()
        held = await self._store.commit_batch(self._batch_id)
        self._has_stored_parts = False
        with contextlib.suppress(StoreError):  # they are stored and visible; a steward moves what is left
            while await self._store.release_batches():
                pass
        return [EnqueueResult(held.get(task_id, task_id), task_id not in held) for task_id in self._ids]

    async def _drop_batch(self) -> None:
        """Forget what was staged; while the store is away, it is swept after a day."""
        if self._has_stored_parts:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._store.drop_batch(self._batch_id))


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield the items of any kind of iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
