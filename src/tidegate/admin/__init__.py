"""`app.admin`: what operators do with a queue. The same code serves the command line and HTTP."""

from __future__ import annotations

from tidegate.admin.dead_letters import DeadLetterAdmin
from tidegate.admin.queues import FunctionAdmin, QueueAdmin, WorkerAdmin
from tidegate.admin.schedules import ScheduleAdmin
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import TaskAdmin
from tidegate.admin.upstreams import UpstreamAdmin


class Admin:
    """Operators' methods. Each method has a twin for sync code, named `…_sync`.

    Example:
        >>> [queue.queue for queue in await app.admin.queues.list() if queue.blocked]  # doctest: +SKIP
        >>> await app.admin.dead_letters.redrive(reason="quota", dry_run=True)  # doctest: +SKIP
        >>> await app.admin.upstreams.park("openai", "10m", why="invoice")  # doctest: +SKIP
    """

    def __init__(self, source: AdminSource) -> None:
        self.tasks = TaskAdmin(source)
        """Find, cancel, run and re-rank tasks, and explain what one waits for."""
        self.queues = QueueAdmin(source)
        """Counts by queue, with the time until each is empty; pause, resume and drain one."""
        self.functions = FunctionAdmin(source)
        """Pause and resume task functions, and set their rate limits."""
        self.dead_letters = DeadLetterAdmin(source)
        """List, count, redrive and purge dead tasks."""
        self.upstreams = UpstreamAdmin(source)
        """Park, open and probe upstreams, and set their limits."""
        self.schedules = ScheduleAdmin(source)
        """List, add, edit, pause, run and preview schedules."""
        self.workers = WorkerAdmin(source)
        """The worker processes: quiet, resume and reload them, and change the concurrency of pools."""


__all__ = [
    "Admin",
    "DeadLetterAdmin",
    "FunctionAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "TaskAdmin",
    "UpstreamAdmin",
    "WorkerAdmin",
]
