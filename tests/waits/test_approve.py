"""`ctx.approve` by the clock of a test: answered, rejected, too late, and what a later run gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate import (
    Approval,
    ApprovalClosedError,
    ApprovalNotFoundError,
    ApprovalRequest,
    ApprovalState,
    ApprovalTimeoutError,
    Context,
    State,
    Tidegate,
)
from tidegate.domain.links import SignedApproval, verify
from tidegate.errors import ArgumentsError, OptionError, UsageError
from tidegate.testing import Kit
from tidegate.testing.kit.application import TEST_LINKS

app = Tidegate("sqlite:///never-opened.db")
sent: list[ApprovalRequest] = []
got: list[Approval] = []


async def mail(request: ApprovalRequest) -> object:
    sent.append(request)
    return object()  # what it returns is not kept


def mail_plainly(request: ApprovalRequest) -> None:
    sent.append(request)


async def done() -> str:
    return "done"


@app.task
async def refund(ctx: Context, cents: int) -> Any:
    got.append(
        await ctx.approve(
            f"refund {cents}?", timeout="2d", key="refund", data={"cents": cents}, to="ada@x", notify=mail
        )
    )
    return got[-1].approved


@app.task
def refund_plainly(ctx: Context, cents: int) -> Any:
    got.append(
        ctx.approve_sync(
            f"refund {cents}?",
            timeout="2d",
            key="refund",
            data={"cents": cents},
            to="ada@x",
            notify=mail_plainly,
        )
    )
    return got[-1].approved


@app.task
async def by_its_truth(ctx: Context) -> str:
    return "done" if await ctx.approve("sure?") else "left"


@app.task(max_attempts=2, backoff="1m")
async def fails_once_after_the_answer(ctx: Context) -> str:
    got.append(await ctx.approve("sure?", notify=mail))
    if ctx.attempt == 1:
        raise ConnectionError("gone")
    return "done"


@app.task
async def rejected_on_time_out(ctx: Context) -> bool:
    got.append(await ctx.approve("sure?", timeout="1h", on_timeout="reject"))
    return got[-1].approved


@app.task
async def two_equal_questions(ctx: Context) -> list[str]:
    first, second = await asyncio.gather(ctx.approve("sure?"), ctx.approve("sure?"))
    return [first.by, second.by]


@app.task
async def approval_beside_an_event(ctx: Context) -> Any:
    approval, data = await asyncio.gather(ctx.approve("sure?"), ctx.wait_event("go"))
    return [approval.approved, data]


@app.task
async def two_questions_and_a_step(ctx: Context) -> str:
    await ctx.approve("first?", notify=mail)
    await ctx.approve("second?", notify=mail)
    return await ctx.step("do", done)


@app.task
async def asks(ctx: Context, options: dict[str, Any]) -> bool:
    return bool(await ctx.approve(**options))


@app.task
async def asks_with_what_cannot_be_stored(ctx: Context) -> None:
    await ctx.approve("sure?", data=object())


@app.task
async def inside_a_step(ctx: Context) -> Any:
    async def ask() -> Any:
        return await ctx.approve("sure?")

    return await ctx.step("ask", ask)


@pytest.fixture
def kit() -> Iterator[Kit]:
    sent.clear()
    got.clear()
    with Kit(app) as kit:
        yield kit


def states(kit: Kit) -> list[State]:
    return [task.state for task in kit.enqueued()]


@pytest.mark.parametrize("function", [refund, refund_plainly])
@pytest.mark.parametrize("approved", [True, False])
def test_a_task_is_suspended_until_a_person_has_answered(kit: Kit, function: Any, approved: bool) -> None:
    handle = function.enqueue_sync(5)
    assert kit.drain_sync().suspended == 1
    [asked] = app.admin.approvals.list_sync()
    assert (asked.question, asked.key, asked.to, asked.data) == ("refund 5?", "refund", "ada@x", {"cents": 5})
    assert (asked.state, asked.task_id, asked.until) == (
        ApprovalState.OPEN,
        handle.id,
        asked.asked_at + timedelta(days=2),
    )
    assert kit.advance_sync("1d").suspended == 0
    answer = app.admin.approvals.approve_sync if approved else app.admin.approvals.reject_sync
    done = answer(handle.id, comment="is fine", data={"limit": 9}, by="ada")
    assert (done.state, done.answered_by, done.comment, done.answer, done.link) == (
        ApprovalState.APPROVED if approved else ApprovalState.REJECTED,
        "ada",
        "is fine",
        {"limit": 9},
        "",
    )
    assert kit.drain_sync().succeeded == 1
    assert handle.result_sync(1) is approved
    [approval] = got
    assert approval == Approval(approved, "ada", done.answered_at or datetime.min, "is fine", {"limit": 9})
    assert approval.at.tzinfo is UTC
    assert app.admin.approvals.list_sync() == []


def test_the_truth_of_an_answer_is_whether_it_is_approved(kit: Kit) -> None:
    handles = [by_its_truth.enqueue_sync() for _ in range(2)]
    kit.drain_sync()
    app.admin.approvals.approve_sync(handles[0].id)
    app.admin.approvals.reject_sync(handles[1].id)
    kit.drain_sync()
    assert [handle.result_sync(1) for handle in handles] == ["done", "left"]


@pytest.mark.parametrize("function", [refund, refund_plainly])
def test_a_person_is_notified_once_with_a_signed_link(kit: Kit, function: Any) -> None:
    handle = function.enqueue_sync(5)
    kit.drain_sync()
    [request] = sent
    [asked] = app.admin.approvals.list_sync()
    assert (request.task_id, request.key, request.question) == (handle.id, "refund", "refund 5?")
    assert (request.data, request.to) == ({"cents": 5}, "ada@x")
    assert (request.asked_at, request.until) == (asked.asked_at, asked.until)
    assert request.link.startswith("https://tidegate.test/approve/")
    assert request.until is not None
    signed = verify(TEST_LINKS.keys, request.link.rpartition("/")[2])
    assert signed is not None
    assert (signed.task_id, signed.key) == (handle.id, "refund")
    assert 0 <= signed.expires_at - request.until.timestamp() < 1
    app.admin.approvals.approve_sync(handle.id)
    kit.drain_sync()
    assert len(sent) == 1


def test_a_later_run_gets_the_recorded_answer_and_notifies_nobody(kit: Kit) -> None:
    handle = fails_once_after_the_answer.enqueue_sync()
    kit.drain_sync()
    app.admin.approvals.approve_sync(handle.id, by="ada")
    kit.drain_sync()
    kit.advance_sync("2m")
    assert handle.result_sync(1) == "done"
    assert [approval.by for approval in got] == ["ada", "ada"]
    assert got[0] == got[1]
    assert len(sent) == 1


def test_no_run_warns_about_mails_that_it_does_not_need_to_send(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    handle = two_questions_and_a_step.enqueue_sync()
    for _ in range(2):
        kit.drain_sync()
        app.admin.approvals.approve_sync(handle.id)
    kit.drain_sync()
    assert handle.result_sync(1) == "done"
    assert [request.question for request in sent] == ["first?", "second?"]
    assert [record.message for record in caplog.records if record.name == "tidegate.steps"] == []


def test_a_question_that_nobody_answers_makes_the_task_a_dead_letter(kit: Kit) -> None:
    refund.enqueue_sync(5)
    kit.drain_sync()
    drained = kit.advance_sync("49h", raise_on_failure=False)
    assert [(run.outcome, run.reason) for run in drained.runs] == [("dead", "timeout")]
    error = drained.runs[0].error
    assert isinstance(error, ApprovalTimeoutError)
    assert (error.code, error.question) == ("TG607", "refund 5?")


def test_a_redrive_after_a_time_out_asks_and_notifies_again(kit: Kit) -> None:
    handle = refund.enqueue_sync(5)
    kit.drain_sync()
    kit.advance_sync("49h", raise_on_failure=False)
    app.admin.dead_letters.redrive_sync(handle.id)
    assert kit.drain_sync().suspended == 1
    assert len(sent) == 2
    assert sent[0].link != sent[1].link
    assert sent[1].until == app.admin.approvals.get_sync(handle.id).until
    app.admin.approvals.approve_sync(handle.id)
    kit.drain_sync()
    assert handle.result_sync(1) is True


def test_a_time_out_can_count_as_a_rejection(kit: Kit) -> None:
    handle = rejected_on_time_out.enqueue_sync()
    kit.drain_sync()
    [asked] = app.admin.approvals.list_sync()
    kit.advance_sync("61m")
    assert handle.result_sync(1) is False
    assert got == [Approval(approved=False, by="", at=asked.until or datetime.min, timed_out=True)]


def test_equal_questions_of_a_task_get_one_answer_each(kit: Kit) -> None:
    handle = two_equal_questions.enqueue_sync()
    kit.drain_sync()
    keys = [asked.key for asked in app.admin.approvals.list_sync(task=handle.id)]
    assert [key.rpartition("-")[2] for key in keys] == ["1", "2"]
    with pytest.raises(ApprovalNotFoundError, match="several questions") as ambiguous:
        app.admin.approvals.approve_sync(handle.id)
    assert all(key in ambiguous.value.fix for key in keys)
    app.admin.approvals.approve_sync(handle.id, keys[1], by="bob")
    assert kit.drain_sync().suspended == 1
    app.admin.approvals.approve_sync(handle.id, by="ada")
    kit.drain_sync()
    assert handle.result_sync(1) == ["ada", "bob"]


def test_an_approval_and_an_event_are_waited_for_together(kit: Kit) -> None:
    handle = approval_beside_an_event.enqueue_sync()
    kit.drain_sync()
    app.admin.approvals.approve_sync(handle.id)
    assert kit.drain_sync().suspended == 1
    app.send_event_sync("go", 7)
    kit.drain_sync()
    assert handle.result_sync(1) == [True, 7]


def test_a_second_answer_is_refused_and_says_who_answered(kit: Kit) -> None:
    handle = by_its_truth.enqueue_sync()
    kit.drain_sync()
    done = app.admin.approvals.reject_sync(handle.id, by="ada")
    with pytest.raises(ApprovalClosedError, match=r"ada rejected this at 20\d\d-") as refused:
        app.admin.approvals.approve_sync(handle.id, by="bob")
    assert done.answered_at is not None
    assert (refused.value.state, refused.value.by, refused.value.at) == (
        "rejected",
        "ada",
        pytest.approx(done.answered_at.timestamp(), abs=1e-5),
    )
    kit.drain_sync()
    assert handle.result_sync(1) == "left"


def test_an_answer_after_the_time_is_refused(kit: Kit) -> None:
    handle = rejected_on_time_out.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync("61m")
    with pytest.raises(ApprovalClosedError, match="the time for the answer was over") as refused:
        app.admin.approvals.approve_sync(handle.id)
    assert refused.value.state == "timed_out"


def test_an_answer_after_a_cancel_is_refused(kit: Kit) -> None:
    handle = by_its_truth.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    with pytest.raises(ApprovalClosedError, match="the task is cancelled") as refused:
        app.admin.approvals.approve_sync(handle.id)
    assert refused.value.state == "final"
    assert app.admin.approvals.list_sync() == []


def test_an_answer_to_a_task_that_asks_nothing_is_refused(kit: Kit) -> None:
    handle = by_its_truth.enqueue_sync()
    with pytest.raises(ApprovalNotFoundError, match="has asked no question"):
        app.admin.approvals.approve_sync(handle.id)


def test_the_task_says_what_it_waits_for_and_its_history_who_answered(kit: Kit) -> None:
    handle = refund.enqueue_sync(5)
    kit.drain_sync()
    reasons = app.admin.tasks.explain_sync(handle.id).reasons
    assert reasons[0] == "suspended: waits for an approval of ada@x: refund 5?, for 48 h at most"
    app.admin.approvals.approve_sync(handle.id, by="bob", comment="go")
    [entry] = [entry for entry in handle.history_sync() if entry.kind == "approved"]
    assert entry.why == "refund 5?, by bob: go"


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"question": ""}, "question"),
        ({"question": "x" * 1_001}, "question"),
        ({"question": "sure?", "timeout": "soon"}, "timeout"),
        ({"question": "sure?", "key": "a/b"}, "key"),
        ({"question": "sure?", "key": ""}, "key"),
        ({"question": "sure?", "key": "x" * 201}, "key"),
        ({"question": "sure?", "to": "x" * 201}, "to"),
        ({"question": "sure?", "on_timeout": "approve"}, "on_timeout"),
    ],
)
def test_a_wrong_option_is_an_error(kit: Kit, options: dict[str, Any], option: str) -> None:
    asks.enqueue_sync(options)
    [run] = kit.drain_sync(raise_on_failure=False).runs
    assert isinstance(run.error, OptionError)
    assert run.error.option == option


def test_data_that_cannot_be_stored_is_an_error(kit: Kit) -> None:
    asks_with_what_cannot_be_stored.enqueue_sync()
    [run] = kit.drain_sync(raise_on_failure=False).runs
    assert isinstance(run.error, ArgumentsError)


def test_a_question_inside_a_step_is_refused(kit: Kit) -> None:
    inside_a_step.enqueue_sync()
    [run] = kit.drain_sync(raise_on_failure=False).runs
    assert isinstance(run.error, UsageError)


async def test_a_question_outside_a_worker_is_refused() -> None:
    with pytest.raises(UsageError, match="outside a worker"):
        await Context.detached().approve("sure?")


@pytest.mark.parametrize("change", ["", "x", ".", "é", "=", " "])
def test_a_changed_link_is_not_valid(change: str) -> None:
    approval = SignedApproval("01900000-0000-7000-8000-000000000000", "refund", 1_800_000_000)
    link = TEST_LINKS.approval_link(approval.task_id, "refund", asked_at=0.0, deadline_at=1_799_999_999.5)
    token = link.removeprefix("https://tidegate.test/approve/")
    assert verify(TEST_LINKS.keys, token) == approval
    assert verify((b"another key",), token) is None
    assert verify((b"another key", *TEST_LINKS.keys), token) == approval
    for at in (0, 5, len(token) // 2, len(token) - 1):
        changed = token[:at] + change + token[at + 1 :]
        assert verify(TEST_LINKS.keys, changed) is None
    assert verify(TEST_LINKS.keys, "") is None
