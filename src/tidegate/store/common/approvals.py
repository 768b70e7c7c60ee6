"""Approvals: questions of tasks to people, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.domain.approval import ApprovalState
from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.states import State
from tidegate.store.approval_rows import (
    AnswerStatus,
    ApprovalAnswer,
    ApprovalRow,
    AskedApproval,
    NewApproval,
)
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable

_LARGEST_NUMBER = 2**63 - 1
_REFUSED = {
    ApprovalState.TIMED_OUT: AnswerStatus.TIMED_OUT,
    ApprovalState.APPROVED: AnswerStatus.ANSWERED,
    ApprovalState.REJECTED: AnswerStatus.ANSWERED,
}


async def ask_approval(db: Session, asked: NewApproval) -> AskedApproval:
    """Ask, or return what became of the question."""
    sql, now, task = db.sql("approvals"), await db.now(), db.id(asked.fence.task_id)
    if task is None or await db.value(db.sql("events")["is_current"], task, asked.fence.run) is None:
        return AskedApproval(None)
    key = storable(asked.key)
    deadline_at = None if asked.timeout_seconds is None else now + asked.timeout_seconds
    texts = (storable(text) for text in (asked.question, asked.recipient, asked.codec_tag))
    question = (task, key, *texts, asked.data, asked.fence.run, now, deadline_at)
    await db.run(sql["ask"], *question)
    found = await db.row(sql["asked"], task, key)
    assert found is not None
    state, _, _, deadline_at, answered_at, *_, redriven_at = found
    if state == ApprovalState.OPEN and deadline_at is not None and deadline_at <= now:
        state, answered_at = ApprovalState.TIMED_OUT, deadline_at
        await db.run(sql["time_out"], task, key)
    if state == ApprovalState.TIMED_OUT and redriven_at is not None and redriven_at > answered_at:
        await db.run(sql["ask_again"], *question)
    found = await db.row(sql["asked"], task, key)
    assert found is not None
    return _asked(found, now)


async def answer_approval(
    db: Session, task_id: str, key: str, answer: ApprovalAnswer, *, tenant: str | None = None
) -> tuple[AnswerStatus, ApprovalRow | None]:
    """Record a person's answer; return what became of it and the approval as it is now."""
    sql, now, task = db.sql("approvals"), await db.now(), db.id(task_id)
    key = storable(key)
    if task is None or await db.row(sql["lock"], task, key) is None:
        return AnswerStatus.UNKNOWN, None
    asked = await _approval(db, now, task, key, tenant)
    if asked is None:
        return AnswerStatus.UNKNOWN, None
    answer = answer._replace(by=storable(answer.by), comment=storable(answer.comment))
    if asked.state is not ApprovalState.OPEN:
        return (AnswerStatus.DONE if _is_same(asked, answer) else _REFUSED[asked.state]), asked
    if asked.task_state is not None:
        return AnswerStatus.FINAL, asked
    state = _state_of(answer)
    given = (answer.by, answer.comment, storable(answer.codec_tag), answer.data)
    await db.run(sql["answer"], task, key, state, now, *given)
    comment = f": {answer.comment}" if answer.comment else ""
    text = f"{asked.question}, by {answer.by}{comment}"[:MESSAGE_LIMIT]
    await db.run(sql["record"], task, now, str(state), text)
    await db.run(db.sql("events")["wake"], db.array([task]), now)
    return AnswerStatus.DONE, await _approval(db, now, task, key, tenant)


async def list_approvals(
    db: Session,
    *,
    state: ApprovalState | None = ApprovalState.OPEN,
    task_id: str | None = None,
    key: str | None = None,
    tenant: str | None = None,
    function: str | None = None,
    after: int | None = None,
    limit: int = 100,
) -> list[ApprovalRow]:
    """Return approvals in the order in which they were first asked."""
    sql, now = db.sql("approvals"), await db.now()
    start = 0 if after is None else min(after, _LARGEST_NUMBER)
    texts = (None if text is None else storable(text) for text in (tenant, function))
    values = (start, limit, now, state, *texts)
    if task_id is not None:
        task = db.id(task_id)
        name = None if key is None else storable(key)
        rows = () if task is None else await db.rows(sql["list_of_task"], *values, name, task)
    else:
        rows = await db.rows(sql["list_open" if state is ApprovalState.OPEN else "list"], *values)
    return [_row(db, row) for row in rows]


async def _approval(db: Session, now: float, task: Any, key: str, tenant: str | None) -> ApprovalRow | None:
    name = None if tenant is None else storable(tenant)
    row = await db.row(db.sql("approvals")["list_of_task"], 0, 1, now, None, name, None, key, task)
    return None if row is None else _row(db, row)


def _state_of(answer: ApprovalAnswer) -> ApprovalState:
    return ApprovalState.APPROVED if answer.approved else ApprovalState.REJECTED


def _is_same(asked: ApprovalRow, answer: ApprovalAnswer) -> bool:
    """Whether this answer was recorded before. Its sender did not get the confirmation and sends it again."""
    recorded = (asked.state, asked.answered_by, asked.comment, asked.answer)
    return recorded == (_state_of(answer), answer.by, answer.comment, answer.data)


def _asked(found: Sequence[Any], now: float) -> AskedApproval:
    state, asks, asked_at, deadline_at, answered_at, by, comment, answer, _ = found
    left = None if deadline_at is None else max(0.0, deadline_at - now)
    return AskedApproval(
        ApprovalState(state),
        asks,
        asked_at,
        deadline_at,
        left,
        answered_at or 0.0,
        by,
        comment,
        answer or b"",
    )


def _row(db: Session, row: Sequence[Any]) -> ApprovalRow:
    number, task, function, queue, tenant, task_state, key, state, *rest = row
    return ApprovalRow(
        number, db.text(task), function, queue, tenant, None if task_state is None else State(task_state),
        key, ApprovalState(state), *rest,
    )  # fmt: skip
