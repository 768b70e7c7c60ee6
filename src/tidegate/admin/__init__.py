"""`app.admin`: the operations of operators. The same code serves the command line and the HTTP API."""

from __future__ import annotations

from typing import Unpack

from tidegate.admin.alerts import AlertAdmin
from tidegate.admin.approvals import ApprovalAdmin
from tidegate.admin.dead_letters import DeadLetterAdmin
from tidegate.admin.doubts import DoubtAdmin
from tidegate.admin.failures import FailureAdmin
from tidegate.admin.history_values import PeriodStatistics, period_statistics
from tidegate.admin.maps import MapAdmin
from tidegate.admin.operations import OperationAdmin
from tidegate.admin.queues import FunctionAdmin, QueueAdmin, WorkerAdmin
from tidegate.admin.schedules import ScheduleAdmin
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import TaskAdmin
from tidegate.admin.upstreams import UpstreamAdmin
from tidegate.operations import history
from tidegate.operations.forget import ForgetReport, forget
from tidegate.operations.history import StatisticsFilters, Step
from tidegate.store.archive import archive_of
from tidegate.store.retention_rows import StoreSize
from tidegate.threads.bridge import run_sync


class Admin:
    """The methods for operators. Each method has a variant for sync code, named `…_sync`.

    Example:
        >>> [queue.queue for queue in await app.admin.queues.list() if queue.blocked]  # doctest: +SKIP
        >>> await app.admin.dead_letters.redrive(reason="quota", dry_run=True)  # doctest: +SKIP
        >>> await app.admin.upstreams.park("openai", "10m", why="invoice")  # doctest: +SKIP
    """

    def __init__(self, source: AdminSource) -> None:
        self.tasks = TaskAdmin(source)
        """Find, cancel, run and re-rank tasks, and explain what a task waits for."""
        self.queues = QueueAdmin(source)
        """Counts of tasks by queue, with the time until each queue is empty; pause, resume and drain a
        queue."""
        self.functions = FunctionAdmin(source)
        """Pause and resume task functions, and set their rate limits."""
        self.dead_letters = DeadLetterAdmin(source)
        """List, count, redrive and purge dead tasks."""
        self.doubts = DoubtAdmin(source)
        """List calls that were sent and have no definite answer, and decide about them."""
        self.approvals = ApprovalAdmin(source)
        """List the questions that tasks ask people, and answer them."""
        self.failures = FailureAdmin(source)
        """List failures that no rule classifies, and mark them as reviewed."""
        self.operations = OperationAdmin(source)
        """Follow, abort and undo redrives and purges of many dead letters."""
        self.maps = MapAdmin(source)
        """List and follow maps, cancel one, and retry its dead items."""
        self.upstreams = UpstreamAdmin(source)
        """Park, open and probe upstreams, and set their limits."""
        self.schedules = ScheduleAdmin(source)
        """List, add, edit, pause, run and preview schedules."""
        self.workers = WorkerAdmin(source)
        """The worker processes: quiet, resume and reload them, and change the concurrency of pools."""
        self.alerts = AlertAdmin(source)
        """List alerts, and mute them."""
        self._source = source

    async def statistics(
        self, *, step: Step = "hour", **filters: Unpack[StatisticsFilters]
    ) -> list[PeriodStatistics]:
        """Return counters of tasks by period, queue, function and upstream, oldest first.

        Events are counted when they happen: a redrive, a purge or retention does not change the counters.

        Args:
            step: The length of a period: `"minute"`, `"hour"` or `"day"`, in UTC. Counters are kept by the
                minute for two days, by the hour for 35 days, and by the day for 400.
            filters: Filters of `StatisticsFilters`. Default: the last 24 hours.

        Raises:
            OptionError: A value is invalid, or there would be more than 3,000 periods.
        """
        store = await self._source.opened_store()
        return [period_statistics(row) for row in await history.read_statistics(store, filters, step=step)]

    def statistics_sync(
        self, *, step: Step = "hour", **filters: Unpack[StatisticsFilters]
    ) -> list[PeriodStatistics]:
        """Same as `statistics`, from sync code."""
        return run_sync(self.statistics(step=step, **filters))

    async def forget(
        self,
        *,
        task_id: str | None = None,
        tenant: str | None = None,
        by: str = "",
        cancel: bool = False,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Remove a task, or a tenant with all its tasks, from the store, the archive and their files.

        This cannot be undone. Backups, server logs and archives on other machines are not touched.

        Args:
            task_id: The task; for a task that is already deleted, its full id.
            tenant: The tenant.
            by: Who does this, for the audit log.
            cancel: Whether to cancel tasks that are not final, and wait until they have ended.
            dry_run: Only count.

        Raises:
            UsageError: Neither or both of a task and a tenant are given.
            NotAcceptedError: Some tasks are not final. Nothing was forgotten.
            TaskNotFoundError: The short id names no task.
            ArchiveError: The archive cannot be rewritten.
        """
        store = await self._source.opened_store()
        return await forget(
            store,
            task_id=task_id,
            tenant=tenant,
            archive=archive_of(self._source.retention),
            by=by,
            cancel=cancel,
            dry_run=dry_run,
        )

    def forget_sync(
        self,
        *,
        task_id: str | None = None,
        tenant: str | None = None,
        by: str = "",
        cancel: bool = False,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Same as `forget`, from sync code."""
        return run_sync(self.forget(task_id=task_id, tenant=tenant, by=by, cancel=cancel, dry_run=dry_run))

    async def sizes(self) -> StoreSize:
        """Return the size of the store and of each table, quickly even if they are large.

        Numbers of rows may be estimates; `TableSize.is_estimate` shows which numbers are.
        """
        return await (await self._source.opened_store()).get_sizes()

    def sizes_sync(self) -> StoreSize:
        """Same as `sizes`, from sync code."""
        return run_sync(self.sizes())


__all__ = [
    "Admin",
    "AlertAdmin",
    "ApprovalAdmin",
    "DeadLetterAdmin",
    "DoubtAdmin",
    "FailureAdmin",
    "FunctionAdmin",
    "MapAdmin",
    "OperationAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "TaskAdmin",
    "UpstreamAdmin",
    "WorkerAdmin",
]
