"""The part of a task's context that asks people: `ctx.approve`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from tidegate.context.run_control import StopReason
from tidegate.context.stop import TaskStopped
from tidegate.context.waits import WaitMethods
from tidegate.domain.readers import (
    LONGEST_WAIT_SECONDS,
    Seconds,
    choice_option,
    encodable,
    seconds_option,
    text_option,
    wrong,
)
from tidegate.errors import ApprovalTimeoutError, UsageError

if TYPE_CHECKING:  # imported by the first question
    from tidegate.domain.approval import Approval, ApprovalRequest
    from tidegate.steps.waits import Wait
    from tidegate.store.approval_rows import AskedApproval, NewApproval

OnTimeout = Literal["raise", "reject"]
Notify = Callable[["ApprovalRequest"], Awaitable[object] | object]
"""Brings a question to a person, for example by mail. Called once each time that the question is asked."""

_NOTIFY = "notify approver"
"""The name of the step that brings a question to a person."""
_CHECK_SECONDS = 1.0
"""How often a run that cannot end yet checks for the answer."""


class ApprovalMethods(WaitMethods):
    """Questions to people: the task gives its slot back until somebody has answered."""

    async def approve(
        self,
        question: str,
        *,
        timeout: Seconds | None = None,
        data: Any = None,
        to: str = "",
        notify: Notify | None = None,
        on_timeout: OnTimeout = "raise",
        key: str | None = None,
    ) -> Approval:
        """Ask a person, wait for the answer without using a slot of the worker, and return the answer.

        The answer is given on the page of a signed link, by `tidegate approvals`, by `app.admin.approvals`
        or over HTTP. The first answer counts. It is recorded: a later run of the task gets the same. While
        nobody has answered, the task is `suspended`, as in a `sleep`.

        The result is true exactly if the person approved, so `if await ctx.approve(…):` does what it says.

        Args:
            question: What the person reads, 1 to 1,000 characters.
            timeout: The longest wait, from the first time that the task asks: seconds, a timedelta, or text
                such as `2d`.
            data: What the person needs to decide, such as the order. It is shown on the page, and must be
                storable: at most 64 KiB.
            to: Whom you ask. An answer by the link is recorded as this person's, because you send the link
                to nobody else.
            notify: A function that brings the question to the person: it gets an `ApprovalRequest` with the
                link. It is called as a step, so a later run does not call it again. A plain function is
                called in a thread.
            on_timeout: `raise` raises an error when nobody answered in time, `reject` returns an answer that
                is not approved, with `timed_out` set.
            key: Names the question in links, on the command line and over HTTP. A question with the same key
                is the same question. Without one, it is derived from the text.

        Raises:
            ApprovalTimeoutError: Nobody answered in time, and `on_timeout` is `raise`.
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            UsageError: Called inside a step or outside a worker.
            ArgumentsError: `data` cannot be stored.
            OptionError: An option is invalid.
        """
        from tidegate.domain.approval import ApprovalState

        new = self._new_approval(question, timeout, data, to, on_timeout, key)
        waits, notified = self._steps().waits, 0
        while True:
            asking = self._steps().port.ask_approval(new)
            asked = await asyncio.shield(asyncio.wrap_future(asking))
            if asked.state is not ApprovalState.OPEN:
                return self._answered(new, asked, on_timeout)
            if notify is not None and notified < asked.asks:
                call = functools.partial(_notify, notify, self._request(new, data, asked))
                await self.step(_NOTIFY, call, key=_step_key(new, asked.asks))
                notified = asked.asks
            with waits.waiting(self._approval_wait(new, asked)) as mine:
                await self._wait(mine, _CHECK_SECONDS)

    def approve_sync(
        self,
        question: str,
        *,
        timeout: Seconds | None = None,
        data: Any = None,
        to: str = "",
        notify: Callable[[ApprovalRequest], object] | None = None,
        on_timeout: OnTimeout = "raise",
        key: str | None = None,
    ) -> Approval:
        """Do the same as `approve`, from a plain function."""
        from tidegate.domain.approval import ApprovalState

        self._require_no_loop("ctx.approve_sync", "use `await ctx.approve(…)`")
        new = self._new_approval(question, timeout, data, to, on_timeout, key)
        waits, notified = self._steps().waits, 0
        while True:
            asked = self._steps().port.ask_approval(new).result()
            if asked.state is not ApprovalState.OPEN:
                return self._answered(new, asked, on_timeout)
            if notify is not None and notified < asked.asks:
                call = functools.partial(_notify, notify, self._request(new, data, asked))
                self.step_sync(_NOTIFY, call, key=_step_key(new, asked.asks))
                notified = asked.asks
            with waits.waiting(self._approval_wait(new, asked)) as mine:
                self._wait_sync(mine, _CHECK_SECONDS)

    def _new_approval(
        self,
        question: str,
        timeout: Seconds | None,
        data: Any,
        to: str,
        on_timeout: str,
        key: str | None,
    ) -> NewApproval:
        from tidegate.codec import CODEC, encode
        from tidegate.domain.approval import (
            DATA_BYTES,
            NAME_LENGTH,
            QUESTION_LENGTH,
            checked_key,
            derived_key,
        )
        from tidegate.steps import current_step
        from tidegate.store.approval_rows import NewApproval

        self.raise_if_cancelled()
        text_option("question", question)
        if not question.strip() or len(question) > QUESTION_LENGTH:
            raise wrong("question", question, f"use text of 1 to {QUESTION_LENGTH:,} characters")
        encodable("question", question)
        if to:
            encodable("to", text_option("to", to))
        if len(to) > NAME_LENGTH:
            raise wrong("to", to, f"use at most {NAME_LENGTH} characters")
        choice_option("on_timeout", on_timeout, ("raise", "reject"))
        if current_step() is not None:
            raise UsageError("ctx.approve was called inside a step", fix="ask between the steps")
        seconds = None if timeout is None else seconds_option("timeout", timeout, most=LONGEST_WAIT_SECONDS)
        steps = self._steps()
        if key is None:
            position = steps.identify("approval", question.encode()).rpartition(":")[2]
            key = derived_key(question, int(position))
        return NewApproval(
            steps.fence,
            checked_key(key),
            question,
            to,
            encode(data, path="the data of an approval", limit=DATA_BYTES),
            CODEC,
            seconds,
        )

    def _approval_wait(self, new: NewApproval, asked: AskedApproval) -> Wait:
        from tidegate.steps.waits import Wait

        whom = f" of {new.recipient}" if new.recipient else ""
        why = f"waits for an approval{whom}: {new.question}"
        return Wait(self._ends_in(asked.left_seconds), why, new.key)

    def _request(self, new: NewApproval, data: Any, asked: AskedApproval) -> ApprovalRequest:
        from tidegate.domain.approval import ApprovalRequest

        return ApprovalRequest(
            task_id=self.task_id,
            key=new.key,
            question=new.question,
            data=data,
            to=new.recipient,
            asked_at=_moment(asked.asked_at),
            until=None if asked.deadline_at is None else _moment(asked.deadline_at),
            link=asked.link,
        )

    def _answered(self, new: NewApproval, asked: AskedApproval, on_timeout: OnTimeout) -> Approval:
        from tidegate.codec import Shape
        from tidegate.domain.approval import Approval, ApprovalState
        from tidegate.steps.execution import key_fingerprint

        if asked.state is None:
            raise TaskStopped(StopReason.LOST.value)
        steps = self._steps()
        for asks in range(1, asked.asks + 1):  # an answered question notifies nobody
            fingerprint = key_fingerprint(_step_key(new, asks))
            steps.pass_over(steps.identify(_NOTIFY, fingerprint, has_key=True))
        timed_out = asked.state is ApprovalState.TIMED_OUT
        if timed_out and on_timeout == "raise":
            raise ApprovalTimeoutError(
                f"nobody answered in time: {new.question}",
                fix="give a longer timeout=, or on_timeout='reject'; a redrive asks again",
                step=new.key,
                question=new.question,
            )
        return Approval(
            approved=asked.state is ApprovalState.APPROVED,
            by=asked.answered_by,
            at=_moment(asked.answered_at),
            comment=asked.comment,
            data=Shape().decode(asked.answer, path="the data of an answer") if asked.answer else None,
            timed_out=timed_out,
        )


def _notify(notify: Notify, request: ApprovalRequest) -> Awaitable[None] | None:
    """Call a function of the user, and drop its return value."""
    sent = notify(request)
    return _awaited(sent) if inspect.isawaitable(sent) else None


async def _awaited(sent: Awaitable[object]) -> None:
    await sent


def _step_key(new: NewApproval, asks: int) -> str:
    """Return the key of the step that notifies. Each time that the question is asked, the key differs."""
    return f"{new.key} {asks}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
