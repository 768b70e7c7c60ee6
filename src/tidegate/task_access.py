"""What an application is asked about tasks by their ids."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tidegate.handle import Handle, StoreSource, require_timeout
from tidegate.readers import Seconds

if TYPE_CHECKING:
    from tidegate.store.rows import CancelStatus
    from tidegate.values import HistoryEntry, TaskStatus


class TaskAccess:
    """The part of `Tidegate` that takes a task's id where a handle is not at hand."""

    _core: StoreSource

    def handle(self, task_id: str) -> Handle[Any]:
        """Return a handle on a task by its id; what only an annotation restores comes as plain JSON."""
        from tidegate.codec import Shape, load_result

        return Handle(task_id, self._core, functools.partial(load_result, Shape()))

    async def status(self, task_id: str) -> TaskStatus:
        """As `Handle.status`, by id."""
        return await self.handle(task_id).status()

    async def result(self, task_id: str, timeout: Seconds | None = None) -> Any:
        """As `Handle.result`, by id."""
        return await self.handle(task_id).result(timeout)

    async def cancel(self, task_id: str, why: str = "", *, force: bool = False) -> CancelStatus:
        """As `Handle.cancel`, by id."""
        return await self.handle(task_id).cancel(why, force=force)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """As `Handle.history`, by id."""
        return await self.handle(task_id).history()

    def status_sync(self, task_id: str) -> TaskStatus:
        """As `status`, from sync code."""
        return self.handle(task_id).status_sync()

    @require_timeout
    def result_sync(self, task_id: str, timeout: Seconds) -> Any:
        """As `result`, from sync code; the timeout must be given."""
        return self.handle(task_id).result_sync(timeout)

    def cancel_sync(self, task_id: str, why: str = "", *, force: bool = False) -> CancelStatus:
        """As `cancel`, from sync code."""
        return self.handle(task_id).cancel_sync(why, force=force)

    def history_sync(self, task_id: str) -> list[HistoryEntry]:
        """As `history`, from sync code."""
        return self.handle(task_id).history_sync()
