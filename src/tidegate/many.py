"""An enqueue of many tasks: one transaction if one part is all, else staged part by part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TypeVar

from tidegate._bridge import run_sync
from tidegate.errors import StoreError
from tidegate.store.protocol import Store
from tidegate.store.rows import Enqueued, NewTask

T = TypeVar("T")

STAGE_TASKS = 5_000
"""Tasks in one transaction of an enqueue; larger ones are staged in parts of this size."""


class Many:
    """An enqueue of many under way: one transaction if one part is all, else staged part by part."""

    def __init__(self, store: Store, stage_id: str) -> None:
        self._store = store
        self._stage_id = stage_id
        self._ids: list[str] = []
        self.kinds: set[tuple[str, str]] = set()
        """Queue and function of the tasks, each once."""
        self._part: list[NewTask] = []
        self._is_staged = False

    async def store(self, tasks: Iterable[NewTask] | AsyncIterable[NewTask]) -> list[Enqueued]:
        """Store all of these tasks, or none if one of them cannot be had; answer in their order."""
        try:
            async for task in each(tasks):
                if self._is_full:
                    await self._stage()
                self._add(task)
            return await self._commit()
        except BaseException:
            await self._drop()
            raise

    def store_sync(self, tasks: Iterable[NewTask]) -> list[Enqueued]:
        """As `store`, from sync code. The iterable is read in the caller's thread."""
        try:
            for task in tasks:
                if self._is_full:
                    run_sync(self._stage())
                self._add(task)
            return run_sync(self._commit())
        except BaseException:
            run_sync(self._drop())
            raise

    @property
    def _is_full(self) -> bool:
        """Whether the present part must be staged before another task is added."""
        return len(self._part) == STAGE_TASKS

    def _add(self, task: NewTask) -> None:
        self._part.append(task)
        self.kinds.add((task.queue, task.function))
        self._ids.append(task.id)

    async def _stage(self) -> None:
        """Store the present part where nothing can see it yet, and begin another."""
        self._is_staged = True
        await self._store.stage(self._stage_id, self._part)
        self._part = []

    async def _commit(self) -> list[Enqueued]:
        """Make everything visible at once; answer in the order of the tasks."""
        if not self._is_staged:
            return await self._store.enqueue(self._part) if self._part else []
        await self._stage()
        held = await self._store.commit_stage(self._stage_id)
        self._is_staged = False
        with contextlib.suppress(StoreError):  # they are stored and visible; a steward moves what is left
            while await self._store.unstage():
                pass
        return [Enqueued(held.get(task_id, task_id), task_id not in held) for task_id in self._ids]

    async def _drop(self) -> None:
        """Forget what was staged; while the store is away, it is swept after a day."""
        if self._is_staged:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._store.drop_stage(self._stage_id))


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield the items of any kind of iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
