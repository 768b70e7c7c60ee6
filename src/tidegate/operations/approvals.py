"""Approvals for people: list the questions of tasks, and answer them."""

from __future__ import annotations

import random
import time
from typing import Any, TypedDict

from tidegate.codec import CODEC, encode
from tidegate.domain.approval import COMMENT_LENGTH, DATA_BYTES, NAME_LENGTH, ApprovalState
from tidegate.domain.ids import IdMaker
from tidegate.domain.moments import to_datetime
from tidegate.domain.readers import require_names, text_option, wrong
from tidegate.errors import ApprovalClosedError, ApprovalNotFoundError
from tidegate.store.access import NewAuditEntry
from tidegate.store.approval_rows import AnswerStatus, ApprovalAnswer, ApprovalRow
from tidegate.store.protocol import Store
from tidegate.store.short_ids import full_ids

_MOST_OF_TASK = 1_000
_KEYS_SHOWN = 5


class ApprovalFilters(TypedDict, total=False):
    """A filter of approvals; every given value must match."""

    task: str | None
    """The id of the task, or its first digits."""
    function: str | None
    """The full name of the task function."""
    tenant: str | None


async def list_approvals(
    store: Store,
    filters: ApprovalFilters,
    *,
    state: ApprovalState | None = ApprovalState.OPEN,
    after: int | None = None,
    limit: int = 50,
) -> list[ApprovalRow]:
    """Return approvals that match, in the order in which they were first asked; a state of None means any.

    Raises:
        OptionError: A value of the filter is invalid, or a short id matches several tasks.
    """
    require_names(filters, ApprovalFilters.__annotations__)
    task, function, tenant = filters.get("task"), filters.get("function"), filters.get("tenant")
    for name, value in (("task", task), ("function", function), ("tenant", tenant)):
        if value is not None:
            text_option(name, value)
    return await store.list_approvals(
        state=state,
        task_id=None if task is None else (await full_ids(store, task, tenant=tenant))[0],
        tenant=tenant,
        function=function,
        after=after,
        limit=limit,
    )


async def get_approval(
    store: Store, task_id: str, key: str | None = None, *, tenant: str | None = None
) -> ApprovalRow:
    """Return one question of a task.

    Args:
        store: Holds the approvals.
        task_id: The id of the task, or its first digits.
        key: The key of the question; None: the only one that is open, or else the only one.
        tenant: Only if the task belongs to this tenant; None: of any.

    Raises:
        ApprovalNotFoundError: There is no such question, or there are several.
        OptionError: The short id matches several tasks.
    """
    (full_id,) = await full_ids(store, task_id, tenant=tenant)
    rows = await store.list_approvals(
        state=None, task_id=full_id, key=key, tenant=tenant, limit=_MOST_OF_TASK
    )
    open_rows = [row for row in rows if row.can_be_answered]
    chosen = rows if len(rows) == 1 else open_rows
    if len(chosen) == 1:
        return chosen[0]
    if not rows:
        asked = "no question" if key is None else f"no question with the key {key}"
        raise ApprovalNotFoundError(
            f"task {task_id} has asked {asked}",
            fix="see the open ones: tidegate approvals ls",
            task_id=task_id,
            key=key or "",
        )
    keys = [row.key for row in open_rows or rows]
    more = ", …" if len(keys) > _KEYS_SHOWN else ""
    raise ApprovalNotFoundError(
        f"task {task_id} has asked several questions",
        fix=f"give the key of one: {', '.join(keys[:_KEYS_SHOWN])}{more}",
        task_id=task_id,
    )


async def answer(
    store: Store,
    task_id: str,
    key: str | None,
    *,
    approved: bool,
    by: str,
    comment: str = "",
    data: Any = None,
    tenant: str | None = None,
) -> ApprovalRow:
    """Answer a question of a task; return it as it is now. The task goes on within about a second.

    The first answer counts. Safe to repeat: the same answer of the same person changes nothing.

    Args:
        store: Holds the approvals.
        task_id: The id of the task, or its first digits.
        key: The key of the question; None: the only one that is open.
        approved: The answer.
        by: Who answers.
        comment: Why.
        data: JSON values for the task.
        tenant: Only if the task belongs to this tenant; None: of any.

    Raises:
        ApprovalNotFoundError: There is no such question, or there are several.
        ApprovalClosedError: Somebody has answered, the time is over, or the task has ended.
        ArgumentsError: `data` cannot be stored.
        OptionError: The comment or the name is too long, or the short id matches several tasks.
    """
    given = _checked_answer(approved=approved, by=by, comment=comment, data=data)
    asked = await get_approval(store, task_id, key, tenant=tenant)
    status, row = await store.answer_approval(asked.task_id, asked.key, given, tenant=tenant)
    if row is None:
        raise ApprovalNotFoundError(
            f"task {task_id} has been deleted", fix="nobody waits any more", task_id=task_id, key=asked.key
        )
    if status is not AnswerStatus.DONE:
        raise closed_error(row)
    return row


async def answer_recorded(
    store: Store,
    task_id: str,
    key: str | None,
    *,
    approved: bool,
    by: str,
    comment: str = "",
    data: Any = None,
) -> ApprovalRow:
    """Do the same as `answer`, and write it to the audit log."""
    row = await answer(store, task_id, key, approved=approved, by=by, comment=comment, data=data)
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)
    entry = NewAuditEntry(make_id(), by, "", row.tenant or None, *audit_facts(row), comment[:500])
    await store.add_audit_entries([entry])
    return row


def audit_facts(row: ApprovalRow) -> tuple[str, str, str]:
    """Return the action, target and answer of an answered question, for the audit log."""
    return f"approval {row.state}", row.task_id, row.key


def closed_error(row: ApprovalRow) -> ApprovalClosedError:
    """Return the error for an answer to a question that takes none any more."""
    state = "final" if row.state is ApprovalState.OPEN else str(row.state)
    return ApprovalClosedError(
        f"{describe_closed(row)}; nothing was changed",
        fix=f"see it: tidegate approvals show {row.task_id} {row.key}",
        task_id=row.task_id,
        key=row.key,
        state=state,
        by=row.answered_by,
        at=row.answered_at or 0.0,
    )


def describe_closed(row: ApprovalRow) -> str:
    """Return why a question takes no answer any more, for people: who has answered, and when."""
    if row.answered_by and row.answered_at is not None:
        when = f"{to_datetime(row.answered_at):%Y-%m-%d %H:%M:%S} UTC"
        return f"{row.answered_by} {row.state} this at {when}"
    if row.state is ApprovalState.TIMED_OUT:
        until = row.answered_at if row.deadline_at is None else row.deadline_at
        return f"the time for the answer was over at {to_datetime(until or 0.0):%Y-%m-%d %H:%M:%S} UTC"
    return f"the task is {row.task_state}, so nobody waits for the answer"


def _checked_answer(*, approved: bool, by: str, comment: str, data: Any) -> ApprovalAnswer:
    text_option("by", by)
    if not by.strip() or len(by) > NAME_LENGTH:
        raise wrong("by", by, f"use text of 1 to {NAME_LENGTH} characters")
    if not isinstance(comment, str) or len(comment) > COMMENT_LENGTH:
        raise wrong("comment", comment, f"use at most {COMMENT_LENGTH:,} characters")
    encoded = encode(data, path="the data of an answer", limit=DATA_BYTES)
    return ApprovalAnswer(approved, by, comment, encoded, CODEC)
