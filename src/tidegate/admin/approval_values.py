"""What `app.admin` returns about approvals. Moments are datetimes in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.codec import Shape
from tidegate.domain.approval import ApprovalState
from tidegate.domain.links import LinkSettings
from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.states import State
from tidegate.store.approval_rows import ApprovalRow


@dataclass(frozen=True, slots=True)
class ApprovalStatus:
    """A question of a task, and its answer."""

    number: int
    """Rises with the order in which questions were first asked."""
    task_id: str
    key: str
    """Identifies the question within its task."""
    function: str
    queue: str
    tenant: str | None
    task_state: State | None
    """The state of a task that has ended; None if it has not."""
    state: ApprovalState
    question: str
    data: Any
    """The data that the task gave with the question."""
    to: str
    """Whom the task asks; empty if it names nobody."""
    asked_at: datetime
    until: datetime | None
    """When the time for the answer is over; None: never."""
    answered_by: str
    """Who answered; empty if nobody did."""
    answered_at: datetime | None
    """When. After a time-out: when the time was over."""
    comment: str
    answer: Any
    """The data of the answer."""
    link: str
    """The link to the page on which a person answers; empty if links are not configured, or if the question
    takes no answer."""


def approval_status(row: ApprovalRow, links: LinkSettings | None) -> ApprovalStatus:
    """Return the public value of an approval."""
    shape = Shape()
    return ApprovalStatus(
        number=row.number,
        task_id=row.task_id,
        key=row.key,
        function=row.function,
        queue=row.queue,
        tenant=row.tenant or None,
        task_state=row.task_state,
        state=row.state,
        question=row.question,
        data=shape.decode(row.data, path="the data of an approval"),
        to=row.recipient,
        asked_at=to_datetime(row.asked_at),
        until=to_datetime_or_none(row.deadline_at),
        answered_by=row.answered_by,
        answered_at=to_datetime_or_none(row.answered_at),
        comment=row.comment,
        answer=None if row.answer is None else shape.decode(row.answer, path="the data of an answer"),
        link=link_of(row, links),
    )


def link_of(row: ApprovalRow, links: LinkSettings | None) -> str:
    """Return the link to an approval; empty if there is none."""
    if links is None or not row.can_be_answered:
        return ""
    return links.approval_link(row.task_id, row.key, asked_at=row.asked_at, deadline_at=row.deadline_at)
