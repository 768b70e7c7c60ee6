"""Approvals: a question gets one answer, whenever it comes; each later run of the task gets the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.approval import ApprovalState
from tidegate.domain.outcome import Cancelled, Fence, Suspended
from tidegate.domain.states import State
from tidegate.store.approval_rows import (
    AnswerStatus,
    ApprovalAnswer,
    ApprovalRow,
    AskedApproval,
    NewApproval,
)

DAY = 86_400.0
OPEN, APPROVED, REJECTED, TIMED_OUT = ApprovalState


def ask(fence: Fence, key: str = "refund", **changes: Any) -> NewApproval:
    given = {"question": "refund > $50", "recipient": "", "data": b"7", "timeout_seconds": None} | changes
    return NewApproval(fence, key, codec_tag=CODEC, **given)


def answer(
    by: str = "ada", *, approved: bool = True, comment: str = "", data: bytes = b"null"
) -> ApprovalAnswer:
    return ApprovalAnswer(approved, by, comment, data, CODEC)


def suspended(fence: Fence, *keys: str, delay: float | None = None) -> Suspended:
    return Suspended(fence, delay, "waits for an approval: refund > $50", -600.0, keys)


async def asked(build: Build, **changes: Any) -> Fence:
    """Ask in a run, and suspend it."""
    fence = (await build.run()).fence
    open_ = await build.store.ask_approval(ask(fence, **changes))
    assert open_.state is OPEN
    await build.done(suspended(fence, "refund", delay=open_.left_seconds))
    return fence


async def rerun(build: Build) -> Fence:
    """Promote and claim the one task that is due."""
    assert await build.store.promote() == 1
    [task] = await build.claim(await build.worker())
    return task.fence


async def status(build: Build, task: str, *args: Any, **changes: Any) -> AnswerStatus:
    return (await build.store.answer_approval(task, "refund", answer(*args, **changes)))[0]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_answer_wakes_the_task_and_each_later_run_gets_it(
    build: Build, clock: SettableClock, approved: bool
) -> None:
    fence = await asked(build)
    clock.advance(DAY)
    assert await build.store.promote() == 0
    given = answer("ada", approved=approved, comment="is fine", data=b'{"limit":9}')
    done, row = await build.store.answer_approval(fence.task_id, "refund", given)
    assert done is AnswerStatus.DONE
    assert row is not None
    state = APPROVED if approved else REJECTED
    assert (row.state, row.answered_by, row.comment, row.answer) == (state, "ada", "is fine", b'{"limit":9}')
    for _ in range(2):
        found = await build.store.ask_approval(ask(await rerun(build), question="another text"))
        assert found.state is state
        assert (found.answered_by, found.comment, found.answer) == ("ada", "is fine", b'{"limit":9}')
        assert found.answered_at == clock.now
        task = (await build.store.read_tasks([fence.task_id]))[fence.task_id]
        await build.done(suspended(Fence(fence.task_id, task.run), "refund", delay=DAY))
    await build.sound()


async def test_an_answer_before_the_suspension_is_stored_wakes_the_task_at_once(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.ask_approval(ask(fence))
    assert await status(build, fence.task_id) is AnswerStatus.DONE
    await build.done(suspended(fence, "refund", delay=DAY))
    assert (await build.store.ask_approval(ask(await rerun(build)))).state is APPROVED


async def test_an_answer_and_a_suspension_at_the_same_moment_lose_nothing(build: Build) -> None:
    tasks = await build.running(60)
    for task in tasks:
        await build.store.ask_approval(ask(task.fence))
    await asyncio.gather(
        *(
            call
            for task in tasks
            for call in (
                build.store.finish([suspended(task.fence, "refund")]),
                build.store.answer_approval(task.fence.task_id, "refund", answer()),
            )
        )
    )
    assert await build.store.promote() == 60
    assert set((await build.states([task.fence.task_id for task in tasks])).values()) == {State.READY}


async def test_of_two_people_who_answer_at_once_one_wins_and_the_other_learns_who_did(build: Build) -> None:
    tasks = [(await asked(build)).task_id for _ in range(20)]
    answers = await asyncio.gather(
        *(
            build.store.answer_approval(task, "refund", answer(by, approved=by == "ada"))
            for task in tasks
            for by in ("ada", "bob")
        )
    )
    for first, second in zip(answers[::2], answers[1::2], strict=True):
        assert {first[0], second[0]} == {AnswerStatus.DONE, AnswerStatus.ANSWERED}
        assert first[1] == second[1]
        assert isinstance(first[1], ApprovalRow)
        assert first[1].answered_by == ("ada" if first[0] is AnswerStatus.DONE else "bob")
        assert (first[1].state is APPROVED) == (first[1].answered_by == "ada")


async def test_the_same_answer_of_the_same_person_is_done_again(build: Build) -> None:
    fence = await asked(build)
    assert [await status(build, fence.task_id, "ada") for _ in range(2)] == [AnswerStatus.DONE] * 2
    assert await status(build, fence.task_id, "ada", approved=False) is AnswerStatus.ANSWERED
    assert await status(build, fence.task_id, "bob") is AnswerStatus.ANSWERED
    history = await build.store.get_history(fence.task_id)
    assert [entry.kind for entry in history].count("approved") == 1


async def test_a_question_times_out_and_no_answer_comes_through_any_more(
    build: Build, clock: SettableClock
) -> None:
    fence = await asked(build, timeout_seconds=60.0)
    clock.advance(60)
    assert await status(build, fence.task_id) is AnswerStatus.TIMED_OUT
    found = await build.store.ask_approval(ask(await rerun(build)))
    assert found.state is TIMED_OUT
    assert found.answered_at == clock.now
    clock.advance(1)
    assert await status(build, fence.task_id) is AnswerStatus.TIMED_OUT
    assert [row.state for row in await build.store.list_approvals(state=None)] == [TIMED_OUT]


async def test_an_answer_just_before_the_time_out_counts_in_the_run_after_it(
    build: Build, clock: SettableClock
) -> None:
    fence = await asked(build, timeout_seconds=60.0)
    clock.advance(59.9)
    assert await status(build, fence.task_id) is AnswerStatus.DONE
    clock.advance(60)
    assert (await build.store.ask_approval(ask(await rerun(build)))).state is APPROVED


async def test_the_time_out_counts_from_the_first_run_that_asked(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    first = await build.store.ask_approval(ask(fence, timeout_seconds=60.0))
    assert (first.left_seconds, first.asks, first.asked_at) == (60.0, 1, clock.now)
    clock.advance(20)
    again = await build.store.ask_approval(ask(fence, timeout_seconds=60.0))
    assert (again.left_seconds, again.asks, again.deadline_at) == (40.0, 1, clock.now + 40)


async def test_a_task_that_is_redriven_after_a_time_out_asks_again(
    build: Build, clock: SettableClock
) -> None:
    fence = await asked(build, timeout_seconds=60.0)
    clock.advance(60)
    again = await rerun(build)
    assert (await build.store.ask_approval(ask(again))).state is TIMED_OUT
    await build.done(dead(again))
    clock.advance(10)
    await build.store.redrive([fence.task_id])
    [task] = await build.claim(await build.worker())
    found = await build.store.ask_approval(ask(task.fence, question="still?", timeout_seconds=30.0))
    assert (found.state, found.asks, found.left_seconds) == (OPEN, 2, 30.0)
    [row] = await build.store.list_approvals()
    assert (row.question, row.run, row.answered_at) == ("still?", task.fence.run, None)
    assert await status(build, fence.task_id) is AnswerStatus.DONE


async def test_a_redriven_task_keeps_the_answer_that_a_person_gave(
    build: Build, clock: SettableClock
) -> None:
    fence = (await build.run()).fence
    await build.store.ask_approval(ask(fence))
    assert await status(build, fence.task_id, approved=False) is AnswerStatus.DONE
    await build.done(dead(fence))
    clock.advance(10)
    await build.store.redrive([fence.task_id])
    [task] = await build.claim(await build.worker())
    assert (await build.store.ask_approval(ask(task.fence))).state is REJECTED


@pytest.mark.parametrize("end", [succeeded, dead, lambda fence: Cancelled(fence, "")])
async def test_a_task_that_has_ended_takes_no_answer_and_is_not_listed_as_open(
    build: Build, end: Any
) -> None:
    fence = (await build.run()).fence
    await build.store.ask_approval(ask(fence))
    await build.done(end(fence))
    refused, row = await build.store.answer_approval(fence.task_id, "refund", answer())
    assert refused is AnswerStatus.FINAL
    assert row is not None
    assert row.state is OPEN
    assert row.task_state is (await build.states([fence.task_id]))[fence.task_id]
    assert not row.can_be_answered
    assert await build.store.list_approvals() == []
    assert await build.store.list_approvals(task_id=fence.task_id) == [row]


async def test_a_suspended_task_that_was_cancelled_takes_no_answer(build: Build) -> None:
    fence = await asked(build)
    await build.store.cancel([fence.task_id])
    assert await status(build, fence.task_id) is AnswerStatus.FINAL
    assert await build.store.promote() == 0


async def test_a_stale_run_asks_nobody(build: Build) -> None:
    fence = (await build.run()).fence
    assert await build.store.ask_approval(ask(Fence(fence.task_id, 7))) == AskedApproval(None)
    assert await build.store.list_approvals(state=None) == []


@pytest.mark.parametrize("task_id", ["", "no-id", "00000000-0000-7000-8000-000000000000"])
async def test_an_answer_to_no_task_is_unknown(build: Build, task_id: str) -> None:
    assert await build.store.answer_approval(task_id, "refund", answer()) == (AnswerStatus.UNKNOWN, None)


async def test_an_answer_to_a_question_that_was_not_asked_is_unknown(build: Build) -> None:
    fence = await asked(build)
    found = await build.store.answer_approval(fence.task_id, "other", answer())
    assert found == (AnswerStatus.UNKNOWN, None)


async def test_another_tenant_can_neither_answer_nor_see_a_question(build: Build) -> None:
    fence = (await build.run(tenant="acme")).fence
    await build.store.ask_approval(ask(fence))
    refused = await build.store.answer_approval(fence.task_id, "refund", answer(), tenant="other")
    assert refused == (AnswerStatus.UNKNOWN, None)
    assert await build.store.list_approvals(tenant="other") == []
    [row] = await build.store.list_approvals(tenant="acme")
    assert (row.tenant, row.state, row.data) == ("acme", OPEN, b"7")
    done, _ = await build.store.answer_approval(fence.task_id, "refund", answer(), tenant="acme")
    assert done is AnswerStatus.DONE


async def test_an_answer_is_part_of_the_history_of_the_task(build: Build, clock: SettableClock) -> None:
    fence = await asked(build)
    clock.advance(5)
    await status(build, fence.task_id, "ada", approved=False, comment="too much")
    [entry] = [each for each in await build.store.get_history(fence.task_id) if each.kind == "rejected"]
    assert (entry.at, entry.why) == (clock.now, "refund > $50, by ada: too much")


async def test_two_answers_at_one_moment_are_both_in_the_history(build: Build) -> None:
    fence = (await build.run()).fence
    for key in ("a", "b"):
        await build.store.ask_approval(ask(fence, key, question=f"question {key}"))
        await build.store.answer_approval(fence.task_id, key, answer())
    kinds = [entry.why for entry in await build.store.get_history(fence.task_id) if entry.kind == "approved"]
    assert "; ".join(kinds) == "question a, by ada; question b, by ada"


async def test_approvals_are_listed_page_by_page_in_the_order_of_the_questions(build: Build) -> None:
    fences = [(await build.run()).fence for _ in range(3)]
    for fence in fences:
        await build.store.ask_approval(ask(fence))
    first = await build.store.list_approvals(limit=2)
    rest = await build.store.list_approvals(after=first[-1].number, limit=2)
    assert [row.task_id for row in first + rest] == [fence.task_id for fence in fences]
    await status(build, fences[0].task_id)
    assert [row.task_id for row in await build.store.list_approvals(state=APPROVED)] == [fences[0].task_id]
    assert len(await build.store.list_approvals()) == 2


async def test_open_approvals_whose_time_is_over_are_listed_as_timed_out(
    build: Build, clock: SettableClock
) -> None:
    fence = await asked(build, timeout_seconds=60.0)
    clock.advance(60)
    assert await build.store.list_approvals() == []
    [row] = await build.store.list_approvals(state=TIMED_OUT)
    assert (row.task_id, row.can_be_answered) == (fence.task_id, False)


async def test_approvals_of_one_function_are_listed(build: Build) -> None:
    fence = await asked(build)
    [row] = await build.store.list_approvals()
    assert await build.store.list_approvals(function=row.function) == [row]
    assert await build.store.list_approvals(function="other") == []
    assert await build.store.list_approvals(task_id=fence.task_id, key="other") == []


async def test_forgetting_a_task_removes_its_approvals(build: Build) -> None:
    fence = (await build.run(tenant="acme")).fence
    await build.store.ask_approval(ask(fence))
    await build.done(succeeded(fence))
    await build.store.forget_tasks([fence.task_id])
    assert await build.store.list_approvals(state=None) == []
    assert await build.store.answer_approval(fence.task_id, "refund", answer()) == (
        AnswerStatus.UNKNOWN,
        None,
    )


@pytest.mark.parametrize("text", ["\0nul", "\ud800 lone", "ñ🌊" * 100])
async def test_any_text_can_be_asked_and_answered(build: Build, text: str) -> None:
    fence = (await build.run()).fence
    await build.store.ask_approval(ask(fence, text, question=text, recipient=text))
    given = answer(text, comment=text, data=b"\x00\xff")
    for _ in range(2):
        done, row = await build.store.answer_approval(fence.task_id, text, given)
        assert done is AnswerStatus.DONE
        assert row is not None
        assert row.answer == b"\x00\xff"
