"""`app.admin.approvals`."""

from __future__ import annotations

import builtins
from typing import Any, Unpack

from tidegate.admin.approval_values import ApprovalStatus, approval_status
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.domain.approval import ApprovalState
from tidegate.domain.readers import choice_option, whole_option
from tidegate.operations import approvals
from tidegate.operations.approvals import ApprovalFilters
from tidegate.operations.pauses import current_user
from tidegate.threads.bridge import run_sync


class ApprovalAdmin:
    """List the questions that tasks ask by `ctx.approve`, and answer them."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(
        self,
        *,
        state: ApprovalState | str | None = ApprovalState.OPEN,
        after: int | None = None,
        limit: int = 50,
        **filters: Unpack[ApprovalFilters],
    ) -> builtins.list[ApprovalStatus]:
        """Return approvals, in the order in which they were first asked.

        Args:
            state: Only approvals in this state; None: in any. Open ones are those that can be answered.
            after: The last number of the page before.
            limit: 1 to 1,000.
            filters: Filters of `ApprovalFilters`. Without filters: all approvals.

        Raises:
            OptionError: A value is invalid.
        """
        rows = await approvals.list_approvals(
            await self._source.opened_store(),
            filters,
            state=None if state is None else ApprovalState(choice_option("state", state, ApprovalState)),
            after=after,
            limit=whole_option("limit", limit, most=MOST_LISTED),
        )
        return [approval_status(row, self._source.links) for row in rows]

    def list_sync(
        self,
        *,
        state: ApprovalState | str | None = ApprovalState.OPEN,
        after: int | None = None,
        limit: int = 50,
        **filters: Unpack[ApprovalFilters],
    ) -> builtins.list[ApprovalStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(state=state, after=after, limit=limit, **filters))

    async def get(self, task_id: str, key: str | None = None) -> ApprovalStatus:
        """Return one question of a task.

        Args:
            task_id: The id of the task, or its first digits.
            key: The key of the question; None: the only one that is open, or else the only one.

        Raises:
            ApprovalNotFoundError: There is no such question, or there are several.
        """
        row = await approvals.get_approval(await self._source.opened_store(), task_id, key)
        return approval_status(row, self._source.links)

    def get_sync(self, task_id: str, key: str | None = None) -> ApprovalStatus:
        """Same as `get`, from sync code."""
        return run_sync(self.get(task_id, key))

    async def approve(
        self, task_id: str, key: str | None = None, *, comment: str = "", data: Any = None, by: str = ""
    ) -> ApprovalStatus:
        """Approve what a task asks. The task goes on within about a second.

        Safe to repeat: the same answer of the same person changes nothing.

        Args:
            task_id: The id of the task, or its first digits.
            key: The key of the question; None: the only one that is open.
            comment: Why; the task gets it too.
            data: JSON values for the task.
            by: Who answers; by default the user of this process.

        Raises:
            ApprovalNotFoundError: There is no such question, or there are several.
            ApprovalClosedError: Somebody has answered, the time is over, or the task has ended.
            ArgumentsError: `data` cannot be stored.
        """
        return await self._answer(task_id, key, comment, data, by, approved=True)

    def approve_sync(
        self, task_id: str, key: str | None = None, *, comment: str = "", data: Any = None, by: str = ""
    ) -> ApprovalStatus:
        """Same as `approve`, from sync code."""
        return run_sync(self.approve(task_id, key, comment=comment, data=data, by=by))

    async def reject(
        self, task_id: str, key: str | None = None, *, comment: str = "", data: Any = None, by: str = ""
    ) -> ApprovalStatus:
        """Reject what a task asks. The task goes on within about a second, and gets the answer.

        Args:
            task_id: The id of the task, or its first digits.
            key: The key of the question; None: the only one that is open.
            comment: Why; the task gets it too.
            data: JSON values for the task.
            by: Who answers; by default the user of this process.

        Raises:
            ApprovalNotFoundError: There is no such question, or there are several.
            ApprovalClosedError: Somebody has answered, the time is over, or the task has ended.
            ArgumentsError: `data` cannot be stored.
        """
        return await self._answer(task_id, key, comment, data, by, approved=False)

    def reject_sync(
        self, task_id: str, key: str | None = None, *, comment: str = "", data: Any = None, by: str = ""
    ) -> ApprovalStatus:
        """Same as `reject`, from sync code."""
        return run_sync(self.reject(task_id, key, comment=comment, data=data, by=by))

    async def _answer(
        self, task_id: str, key: str | None, comment: str, data: Any, by: str, *, approved: bool
    ) -> ApprovalStatus:
        row = await approvals.answer_recorded(
            await self._source.opened_store(),
            task_id,
            key,
            approved=approved,
            by=by or current_user("app.admin"),
            comment=comment,
            data=data,
        )
        return approval_status(row, self._source.links)
