"""Types of the bodies about approvals, and how the store's rows fill them."""

from __future__ import annotations

import msgspec

from tidegate.codec.plain import plain
from tidegate.store.approval_rows import ApprovalRow


class ApprovalOut(msgspec.Struct):
    """A question of a task, and its answer. The link to answer it is not shown."""

    number: int
    task_id: str
    key: str
    """Identifies the question within its task."""
    function: str
    queue: str
    tenant: str | None
    task_state: str | None
    """The state of a task that has ended; null if it has not."""
    state: str
    """`open`, `approved`, `rejected` or `timed_out`."""
    question: str
    data: msgspec.Raw
    """The data that the task gave with the question: any JSON value."""
    to: str
    """Whom the task asks; empty if it names nobody."""
    asked_at: float
    until: float | None
    """When the time for the answer is over; null: never."""
    answered_by: str
    """Who answered; empty if nobody did."""
    answered_at: float | None
    """When. After a time-out: when the time was over."""
    comment: str
    answer: msgspec.Raw
    """The data of the answer: any JSON value."""


class ApprovalPage(msgspec.Struct):
    """Approvals, in the order in which they were first asked."""

    approvals: list[ApprovalOut]
    next: int | None
    """The `after` of the next page; null on the last one."""


class AnswerApprovalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to a question of a task."""

    approved: bool
    comment: str = ""
    """Why; the task gets it too. At most 2,000 characters."""
    data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    """Data for the task: any JSON value of at most 64 KiB."""


def to_approval_out(row: ApprovalRow) -> ApprovalOut:
    """Return the response body of an approval."""
    return ApprovalOut(
        number=row.number,
        task_id=row.task_id,
        key=row.key,
        function=row.function,
        queue=row.queue,
        tenant=row.tenant or None,
        task_state=None if row.task_state is None else str(row.task_state),
        state=str(row.state),
        question=row.question,
        data=plain(row.data),
        to=row.recipient,
        asked_at=row.asked_at,
        until=row.deadline_at,
        answered_by=row.answered_by,
        answered_at=row.answered_at,
        comment=row.comment,
        answer=msgspec.Raw(b"null") if row.answer is None else plain(row.answer),
    )
