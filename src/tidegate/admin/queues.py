"""`app.admin.queues`, `app.admin.functions` and `app.admin.workers`."""

from __future__ import annotations

import builtins

from tidegate.admin.source import AdminSource
from tidegate.admin.values import (
    PauseStatus,
    QueueStatus,
    WorkerStatus,
    pause_status,
    queue_status,
    worker_status,
)
from tidegate.domain.readers import Seconds, name_option, positive_option, seconds_option, whole_option
from tidegate.limits.pauses import PauseKind
from tidegate.operations import workers
from tidegate.operations.function_limits import set_function_limit
from tidegate.operations.overview import read_queues
from tidegate.operations.pauses import (
    current_user,
    pause,
    require_declared,
    resume,
    wait_until_drained,
)
from tidegate.threads.bridge import run_sync

_THROUGH = "app.admin"


class QueueAdmin:
    """Counts of tasks by queue, and pauses. No method here scans finished tasks."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self) -> builtins.list[QueueStatus]:
        """Return each queue that holds a task, finished one in the last ten minutes or is paused, by name."""
        store = await self._source.opened_store()
        return [queue_status(row) for row in await read_queues(store)]

    def list_sync(self) -> builtins.list[QueueStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())

    async def pause(self, queue: str, *, why: str = "", by: str | None = None) -> bool:
        """Start no more tasks of a queue, in any worker, until it is resumed; return False if it was paused.

        Running tasks continue, waiting tasks keep their place, and new tasks are accepted. The pause survives
        restarts. A second pause changes nothing.

        Args:
            queue: The name of the queue. The queue need not have tasks yet.
            why: The reason, shown wherever the pause is shown.
            by: Who pauses it; None: the user of this process.

        Raises:
            OptionError: No queue can have this name.
        """
        store = await self._source.opened_store()
        name, who = name_option("queue", queue), by or current_user(_THROUGH)
        return await pause(store, PauseKind.QUEUE, name, by=who, why=why)

    def pause_sync(self, queue: str, *, why: str = "", by: str | None = None) -> bool:
        """Same as `pause`, from sync code."""
        return run_sync(self.pause(queue, why=why, by=by))

    async def resume(self, queue: str, *, by: str | None = None) -> bool:
        """Let the tasks of a queue start again; return whether it was paused."""
        store = await self._source.opened_store()
        return await resume(store, PauseKind.QUEUE, queue, by=by or current_user(_THROUGH))

    def resume_sync(self, queue: str, *, by: str | None = None) -> bool:
        """Same as `resume`, from sync code."""
        return run_sync(self.resume(queue, by=by))

    async def drain(self, queue: str, *, timeout: Seconds | None = None) -> QueueStatus:
        """Wait until a queue has no ready, retrying or running task; return its counts then.

        The wait changes nothing. New tasks are accepted meanwhile and count too; tasks scheduled for later do
        not.

        Args:
            queue: The name of the queue.
            timeout: How long to wait; None waits for ever.

        Raises:
            OptionError: The time cannot work.
            WrongStateError: The queue is paused.
            ResultTimeoutError: The queue was not empty in time.
        """
        seconds = None if timeout is None else positive_option("timeout", timeout)
        store = await self._source.opened_store()
        return queue_status(await wait_until_drained(store, queue, timeout_seconds=seconds))

    def drain_sync(self, queue: str, *, timeout: Seconds | None = None) -> QueueStatus:
        """Same as `drain`, from sync code."""
        return run_sync(self.drain(queue, timeout=timeout))


class FunctionAdmin:
    """Pauses and rate limits of task functions."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def paused(self) -> builtins.list[PauseStatus]:
        """Return the paused functions, by name."""
        rows = await (await self._source.opened_store()).list_pauses()
        return [pause_status(row) for row in rows if row.kind is PauseKind.FUNCTION]

    def paused_sync(self) -> builtins.list[PauseStatus]:
        """Same as `paused`, from sync code."""
        return run_sync(self.paused())

    async def pause(self, function: str, *, why: str = "", by: str | None = None) -> bool:
        """Start no more tasks of a function, in any queue and worker; return False if it was paused.

        Args:
            function: The full name of the function, such as `app:summarize`.
            why: The reason, shown wherever the pause is shown.
            by: Who pauses it; None: the user of this process.

        Raises:
            UnknownFunctionError: No application declares the function.
        """
        store = await self._source.opened_store()
        await require_declared(store, function, self._source.functions)
        return await pause(store, PauseKind.FUNCTION, function, by=by or current_user(_THROUGH), why=why)

    def pause_sync(self, function: str, *, why: str = "", by: str | None = None) -> bool:
        """Same as `pause`, from sync code."""
        return run_sync(self.pause(function, why=why, by=by))

    async def set_rate_limit(self, function: str, rate: str, *, why: str = "", by: str | None = None) -> str:
        """Change a function's rate limit for all workers, at once; return what is in force.

        Args:
            function: The full name of the function.
            rate: The limit, such as `80/min`; `none` removes it, `code` hands it back to the code.
            why: The reason, for the audit log.
            by: Who changes the limit; None: the user of this process.

        Raises:
            OptionError: The rate cannot be read.
            UnknownFunctionError: No application declares the function.
        """
        store = await self._source.opened_store()
        await require_declared(store, function, self._source.functions)
        return await set_function_limit(store, function, rate, by=by or current_user(_THROUGH), why=why)

    def set_rate_limit_sync(self, function: str, rate: str, *, why: str = "", by: str | None = None) -> str:
        """Same as `set_rate_limit`, from sync code."""
        return run_sync(self.set_rate_limit(function, rate, why=why, by=by))

    async def resume(self, function: str, *, by: str | None = None) -> bool:
        """Let the tasks of a function start again; return whether it was paused."""
        store = await self._source.opened_store()
        return await resume(store, PauseKind.FUNCTION, function, by=by or current_user(_THROUGH))

    def resume_sync(self, function: str, *, by: str | None = None) -> bool:
        """Same as `resume`, from sync code."""
        return run_sync(self.resume(function, by=by))


class WorkerAdmin:
    """The worker processes, and orders to them while they run.

    Each change returns after `wait` at the latest, with the reply of each process or worker that it concerns:
    `applied`, after a reload `every process has restarted`, or None if there is no reply yet.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(self) -> builtins.list[WorkerStatus]:
        """Return the worker processes that are not retired, and retired processes that still hold runs."""
        store = await self._source.opened_store()
        rows, now = await store.list_workers(), await store.now()
        return [worker_status(row, now) for row in rows]

    def list_sync(self) -> builtins.list[WorkerStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())

    async def quiet(
        self, name: str, *, why: str = "", by: str | None = None, wait: Seconds = 10.0
    ) -> dict[str, str | None]:
        """Let a worker, or one of its processes, claim no more tasks; return the replies.

        The worker finishes running tasks and stays up. A worker stays quiet until it is resumed, even after a
        restart; a single process stays quiet until it ends.

        Args:
            name: The worker's name, or the id of one process.
            why: The reason, for the audit log and `status`.
            by: Who makes the request; None: the user of this process.
            wait: How long to wait for replies.

        Raises:
            NotAcceptedError: No live worker has this name or id.
        """
        store = await self._source.opened_store()
        change = await workers.quiet(store, name, by=by or current_user(_THROUGH), why=why)
        return await workers.wait_for_reports(store, change, seconds_option("wait", wait))

    def quiet_sync(
        self, name: str, *, why: str = "", by: str | None = None, wait: Seconds = 10.0
    ) -> dict[str, str | None]:
        """Same as `quiet`, from sync code."""
        return run_sync(self.quiet(name, why=why, by=by, wait=wait))

    async def resume(
        self, name: str, *, why: str = "", by: str | None = None, wait: Seconds = 10.0
    ) -> dict[str, str | None]:
        """Let a quiet worker or process claim tasks again; return the replies.

        Raises:
            NotAcceptedError: No live worker has this name or id.
        """
        store = await self._source.opened_store()
        change = await workers.resume(store, name, by=by or current_user(_THROUGH), why=why)
        return await workers.wait_for_reports(store, change, seconds_option("wait", wait))

    def resume_sync(
        self, name: str, *, why: str = "", by: str | None = None, wait: Seconds = 10.0
    ) -> dict[str, str | None]:
        """Same as `resume`, from sync code."""
        return run_sync(self.resume(name, why=why, by=by, wait=wait))

    async def reload(
        self, name: str | None = None, *, why: str = "", by: str | None = None, wait: Seconds = "10m"
    ) -> dict[str, str | None]:
        """Restart every process of a worker, or of all workers, with the present code on its machine.

        One process after another takes no more tasks, lets running tasks end within the grace time, and is
        replaced. In pools with `overlap=True` the new process starts first. If the new code cannot be loaded,
        the old code keeps running, and the reply contains the reason.

        Args:
            name: The worker's name; None: all workers.
            why: The reason, for the audit log.
            by: Who makes the request; None: the user of this process.
            wait: How long to wait for replies.

        Raises:
            NotAcceptedError: No live worker has this name, or no worker is live.
        """
        store = await self._source.opened_store()
        change = await workers.reload(store, name, by=by or current_user(_THROUGH), why=why)
        return await workers.wait_for_reports(store, change, seconds_option("wait", wait))

    def reload_sync(
        self, name: str | None = None, *, why: str = "", by: str | None = None, wait: Seconds = "10m"
    ) -> dict[str, str | None]:
        """Same as `reload`, from sync code."""
        return run_sync(self.reload(name, why=why, by=by, wait=wait))

    async def set_concurrency(
        self,
        pool: str,
        concurrency: int | None,
        *,
        why: str = "",
        by: str | None = None,
        wait: Seconds = 10.0,
    ) -> dict[str, str | None]:
        """Change how many tasks each process of a pool runs at once; return the replies.

        Args:
            pool: The pool's name.
            concurrency: The number of tasks; it stays in force over restarts. None hands the setting back to
                the code.
            why: The reason, for the audit log.
            by: Who makes the request; None: the user of this process.
            wait: How long to wait for replies.

        Raises:
            OptionError: The number is not a whole number from 1.
            NotAcceptedError: No live worker has such a pool.
        """
        number = None if concurrency is None else whole_option("concurrency", concurrency)
        store, who = await self._source.opened_store(), by or current_user(_THROUGH)
        change = await workers.set_concurrency(store, pool, number, by=who, why=why)
        return await workers.wait_for_reports(store, change, seconds_option("wait", wait))

    def set_concurrency_sync(
        self,
        pool: str,
        concurrency: int | None,
        *,
        why: str = "",
        by: str | None = None,
        wait: Seconds = 10.0,
    ) -> dict[str, str | None]:
        """Same as `set_concurrency`, from sync code."""
        return run_sync(self.set_concurrency(pool, concurrency, why=why, by=by, wait=wait))
