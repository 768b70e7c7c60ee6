"""The part of the store contract for approvals, which tasks ask people for."""

from __future__ import annotations

from typing import Protocol

from tidegate.domain.approval import ApprovalState
from tidegate.store.approval_rows import (
    AnswerStatus,
    ApprovalAnswer,
    ApprovalRow,
    AskedApproval,
    NewApproval,
)


class Approvals(Protocol):
    """Questions of tasks to people. Each question gets one answer, and each later run gets the same."""

    async def ask_approval(self, asked: NewApproval) -> AskedApproval:
        """Ask, or return what became of the question.

        An open question whose time is over times out now. A question that had timed out before the task was
        redriven is asked again.
        """

    async def answer_approval(
        self, task_id: str, key: str, answer: ApprovalAnswer, *, tenant: str | None = None
    ) -> tuple[AnswerStatus, ApprovalRow | None]:
        """Record a person's answer; return what became of it and the approval as it is now.

        The first answer wins. A suspended task becomes due at once. The answer is part of the task's history.
        Safe to repeat: the same answer of the same person is `done` again.

        Args:
            task_id: The task.
            key: The question.
            answer: The answer.
            tenant: Only if the task belongs to this tenant; None: of any.
        """

    async def list_approvals(
        self,
        *,
        state: ApprovalState | None = ApprovalState.OPEN,
        task_id: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        function: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[ApprovalRow]:
        """Return approvals in the order in which they were first asked.

        Args:
            state: Only those in this state; None: in any. Open ones of tasks that have ended are left out.
            task_id: Only those of this task.
            key: Only this question.
            tenant: Only those of this tenant.
            function: Only those of tasks of this function, by its full name.
            after: The last number of the page before.
            limit: How many at most.
        """
