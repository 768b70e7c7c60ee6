"""`app.admin.tasks`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import TypedDict, Unpack

from tidegate.admin.doubt_values import (
    ProviderJobStatus,
    StepStatus,
    provider_job_status,
    step_status,
)
from tidegate.admin.source import AdminSource
from tidegate.admin.values import WaitExplanation
from tidegate.domain.readers import require_names, whole_option, wrong
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.operations.pauses import current_user
from tidegate.operations.tasks import explain, full_id, read_task, retry_tasks
from tidegate.options import priority_option
from tidegate.store.rows import ActionStatus, CancelStatus, TaskFilter
from tidegate.store.short_ids import TaskIds, full_ids
from tidegate.threads.bridge import run_sync
from tidegate.values import TaskStatus, task_status

MOST_LISTED = 1_000
"""How many rows are read in one page."""


class TaskFilters(TypedDict, total=False):
    """A filter of tasks; every given value must match."""

    state: State | str | Iterable[State | str] | None
    """A state or several states."""
    queue: str | None
    function: str | None
    """The full name of the task function."""
    tenant: str | None
    reason: str | None
    """The reason of the last failure, a value of `Reason`."""
    labels: Mapping[str, str] | None


class TaskAdmin:
    """Find, cancel, run and re-rank tasks.

    Ids may be short: their first digits, as long as only one task has them.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[TaskFilters]
    ) -> builtins.list[TaskStatus]:
        """Return tasks, the newest first.

        Args:
            after: The last task id of the page before.
            limit: 1 to 1,000.
            filters: Filters of `TaskFilters`. Without filters: all tasks.

        Raises:
            OptionError: A value is invalid.
            TaskNotFoundError: No task has the id `after`.
        """
        require_names(filters, TaskFilters.__annotations__)
        task_filter = TaskFilter(
            states=_states(filters.get("state")),
            queue=filters.get("queue"),
            function=filters.get("function"),
            tenant=filters.get("tenant"),
            reason=filters.get("reason"),
            labels=filters.get("labels") or {},
        )
        limit = whole_option("limit", limit, most=MOST_LISTED)
        store = await self._source.opened_store()
        after = None if after is None else await full_id(store, after)
        rows = await store.list_tasks(task_filter, after=after, limit=limit)
        return [task_status(row) for row in rows]

    def list_sync(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[TaskFilters]
    ) -> builtins.list[TaskStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(after=after, limit=limit, **filters))

    async def explain(self, task_id: str) -> WaitExplanation:
        """Return why a task does not run: a closed gate, a limit, a budget, its due time, or no worker.

        Raises:
            TaskNotFoundError: No such task.
        """
        store = await self._source.opened_store()
        row = await read_task(store, task_id)
        reasons = await explain(store, row, self._source.functions)
        return WaitExplanation(row.id, row.state, tuple(reasons))

    def explain_sync(self, task_id: str) -> WaitExplanation:
        """Same as `explain`, from sync code."""
        return run_sync(self.explain(task_id))

    async def steps(self, task_id: str) -> builtins.list[StepStatus]:
        """Return the recorded steps of a task, in the order in which they were first begun.

        Raises:
            TaskNotFoundError: No such task.
        """
        store = await self._source.opened_store()
        rows = await store.read_steps(await full_id(store, task_id), with_data=False)
        return [step_status(row) for row in rows]

    def steps_sync(self, task_id: str) -> builtins.list[StepStatus]:
        """Same as `steps`, from sync code."""
        return run_sync(self.steps(task_id))

    async def provider_jobs(self, task_id: str) -> builtins.list[ProviderJobStatus]:
        """Return the provider jobs of a task, in the order in which they were begun.

        Raises:
            TaskNotFoundError: No such task.
        """
        store = await self._source.opened_store()
        rows = await store.list_provider_jobs(await full_id(store, task_id))
        return [provider_job_status(row) for row in rows]

    def provider_jobs_sync(self, task_id: str) -> builtins.list[ProviderJobStatus]:
        """Same as `provider_jobs`, from sync code."""
        return run_sync(self.provider_jobs(task_id))

    async def cancel(
        self, task_ids: TaskIds, why: str = "", *, force: bool = False
    ) -> dict[str, CancelStatus]:
        """Cancel tasks in any state; return a status by id.

        Running tasks are asked to stop and never run again.

        Args:
            task_ids: One id or several.
            why: The reason, kept in the history of the tasks.
            force: Do not wait for functions that do not stop when asked.
        """
        store = await self._source.opened_store()
        return await store.cancel(await full_ids(store, task_ids), why=why, force=force)

    def cancel_sync(
        self, task_ids: TaskIds, why: str = "", *, force: bool = False
    ) -> dict[str, CancelStatus]:
        """Same as `cancel`, from sync code."""
        return run_sync(self.cancel(task_ids, why, force=force))

    async def run_now(self, task_ids: TaskIds) -> dict[str, ActionStatus]:
        """Make scheduled and retrying tasks ready at once; return a status by id. Final tasks are refused."""
        store = await self._source.opened_store()
        return await store.run_now(await full_ids(store, task_ids))

    def run_now_sync(self, task_ids: TaskIds) -> dict[str, ActionStatus]:
        """Same as `run_now`, from sync code."""
        return run_sync(self.run_now(task_ids))

    async def retry(self, task_ids: TaskIds) -> dict[str, ActionStatus]:
        """Run tasks again now: waiting tasks become due, dead tasks are redriven, other tasks are refused.

        Raises:
            NotAcceptedError: No application declares the function of a dead task. Nothing was done.
        """
        store = await self._source.opened_store()
        return await retry_tasks(
            store, await full_ids(store, task_ids), self._source.functions, by=current_user("app.admin")
        )

    def retry_sync(self, task_ids: TaskIds) -> dict[str, ActionStatus]:
        """Same as `retry`, from sync code."""
        return run_sync(self.retry(task_ids))

    async def reprioritise(self, task_ids: TaskIds, priority: Priority | str) -> dict[str, ActionStatus]:
        """Change the priority of waiting and ready tasks; return a status by id. Tasks keep their rank.

        Args:
            task_ids: One id or several.
            priority: `interactive`, `normal` or `bulk`.
        """
        wanted = priority_option("priority", priority)
        store = await self._source.opened_store()
        return await store.reprioritise(await full_ids(store, task_ids), wanted)

    def reprioritise_sync(self, task_ids: TaskIds, priority: Priority | str) -> dict[str, ActionStatus]:
        """Same as `reprioritise`, from sync code."""
        return run_sync(self.reprioritise(task_ids, priority))


def _states(value: State | str | Iterable[State | str] | None) -> tuple[State, ...]:
    """Return the states that were given by value or by name; an empty result for None."""
    given = [value] if isinstance(value, str) else list(value or ())
    try:
        return tuple(State(state) for state in given)
    except ValueError:
        raise wrong("state", value, f"use one of {', '.join(State)}, or a list of them") from None
