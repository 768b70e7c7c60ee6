"""The methods of `Tidegate` that read or cancel a task by its id."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tidegate.domain.readers import Seconds
from tidegate.handle import Handle, StoreSource, require_timeout
from tidegate.map_handle import MapHandle

if TYPE_CHECKING:
    from tidegate.store.rows import CancelStatus
    from tidegate.values import HistoryEntry, TaskStatus


class TaskAccess:
    """The part of `Tidegate` that works on a task by its id, without a handle."""

    _core: StoreSource

    def handle(self, task_id: str) -> Handle[Any]:
        """Return a handle on a task. The result is plain JSON, because no annotation names its type."""
        from tidegate.codec import Shape, load_result

        return Handle(task_id, self._core, functools.partial(load_result, Shape()))

    def map_handle(self, map_id: str) -> MapHandle[Any]:
        """Return a handle on a map.

        The results of such a handle are plain JSON, because no annotation names their type.
        """
        from tidegate.codec import Shape, load_result

        return MapHandle(map_id, self._core, functools.partial(load_result, Shape()))

    async def status(self, task_id: str) -> TaskStatus:
        """Same as `Handle.status`, by id."""
        return await self.handle(task_id).status()

    async def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """Same as `Handle.result`, by id."""
        return await self.handle(task_id).result(timeout)

    async def cancel(self, task_id: str, why: str = "", *, force: bool = False) -> CancelStatus:
        """Same as `Handle.cancel`, by id."""
        return await self.handle(task_id).cancel(why, force=force)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Same as `Handle.history`, by id."""
        return await self.handle(task_id).history()

    def status_sync(self, task_id: str) -> TaskStatus:
        """Same as `status`, from sync code."""
        return self.handle(task_id).status_sync()

    @require_timeout
    def result_sync(self, task_id: str, timeout: Seconds) -> Any:
        """Same as `result`, from sync code. The timeout is required."""
        return self.handle(task_id).result_sync(timeout)

    def cancel_sync(self, task_id: str, why: str = "", *, force: bool = False) -> CancelStatus:
        """Same as `cancel`, from sync code."""
        return self.handle(task_id).cancel_sync(why, force=force)

    def history_sync(self, task_id: str) -> list[HistoryEntry]:
        """Same as `history`, from sync code."""
        return self.handle(task_id).history_sync()
