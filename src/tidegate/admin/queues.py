"""`app.admin.queues` and `app.admin.workers`."""

from __future__ import annotations

import builtins

from tidegate.admin.source import AdminSource
from tidegate.admin.values import QueueStatus, WorkerStatus, queue_status, worker_status
from tidegate.operations.overview import read_queues
from tidegate.threads.bridge import run_sync


class QueueAdmin:
    """Counts of tasks by queue. No method here scans finished tasks."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self) -> builtins.list[QueueStatus]:
        """Return each queue that holds a task or finished one in the last ten minutes, by name."""
        store = await self._source.opened_store()
        return [queue_status(row) for row in await read_queues(store)]

    def list_sync(self) -> builtins.list[QueueStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())


class WorkerAdmin:
    """The worker processes."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self) -> builtins.list[WorkerStatus]:
        """Return the worker processes that are not retired, and retired ones that still hold runs."""
        store = await self._source.opened_store()
        rows, now = await store.list_workers(), await store.now()
        return [worker_status(row, now) for row in rows]

    def list_sync(self) -> builtins.list[WorkerStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())
