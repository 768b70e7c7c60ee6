"""One watcher a loop follows every task that anyone there waits for: one read for all, however many wait."""

from __future__ import annotations

import asyncio

from tidegate.domain.states import FINAL
from tidegate.store.protocol import Store

GAP_SECONDS = 0.02
"""Between two reads at least, so that a busy store is not read for each of its commits."""
LONGEST_SECONDS = 1.0
"""Between two reads at most, should a hint be missed."""
AT_ONCE = 500
"""Tasks in one read."""


class FinalWatch:
    """Tells when tasks reach their final state. Belongs to one event loop.

    Args:
        store: An open store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._job: asyncio.Task[None] | None = None

    async def final(self, task_id: str) -> None:
        """Return once the task is final, or gone."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, set()).add(future)
        if self._job is None:
            self._job = asyncio.create_task(self._follow(), name="tidegate result watch")
        try:
            await future
        finally:
            self._forget(task_id, future)

    async def _follow(self) -> None:
        """Read and tell until nobody waits any more."""
        try:
            while self._waiting:
                await self._look()
                if self._waiting:
                    await self._store.changed(LONGEST_SECONDS)
                    await asyncio.sleep(GAP_SECONDS)
        except Exception as error:  # else they would wait for ever
            self._fail(error)
        finally:
            self._job = None  # a task keeps its loop, which would keep us in turn

    async def _look(self) -> None:
        ids = list(self._waiting)
        for begin in range(0, len(ids), AT_ONCE):
            part = ids[begin : begin + AT_ONCE]
            rows = await self._store.read(part)
            for task_id in part:
                if task_id not in rows or rows[task_id].state in FINAL:
                    self._tell(task_id)

    def _tell(self, task_id: str) -> None:
        for future in self._waiting.pop(task_id, set()):
            if not future.done():
                future.set_result(None)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def _forget(self, task_id: str, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(task_id)
        if futures is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[task_id]
