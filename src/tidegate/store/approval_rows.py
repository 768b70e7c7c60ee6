"""The values of approvals in the store: what tasks ask, and what people answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.approval import ApprovalState
from tidegate.domain.outcome import Fence
from tidegate.domain.states import State


class NewApproval(NamedTuple):
    """A run asks a person."""

    fence: Fence
    key: str
    """Identifies the question within the task."""
    question: str
    recipient: str
    """Whom the task asks; empty if it names nobody."""
    data: bytes
    codec_tag: str
    timeout_seconds: float | None
    """Counts from the first time that a run of the task asks; None: no timeout."""


class AskedApproval(NamedTuple):
    """The store's answer to a `NewApproval`."""

    state: ApprovalState | None
    """None: the run is no longer the task's current one. Nothing was written."""
    asks: int = 0
    """How often the question was asked. A redrive after a time-out asks again."""
    asked_at: float = 0.0
    deadline_at: float | None = None
    left_seconds: float | None = None
    """The time until an open approval times out; None: it does not."""
    answered_at: float = 0.0
    answered_by: str = ""
    comment: str = ""
    answer: bytes = b""
    """The encoded data of the answer."""
    link: str = ""
    """The link to the page on which a person answers. The worker adds it, if links are configured."""


class ApprovalAnswer(NamedTuple):
    """What a person answers."""

    approved: bool
    by: str
    comment: str = ""
    data: bytes = b""
    """Encoded."""
    codec_tag: str = ""


class AnswerStatus(StrEnum):
    """What became of an answer."""

    DONE = "done"
    """Recorded now, or the same answer of the same person was recorded before."""
    ANSWERED = "answered"
    """Somebody else answered first, or the same person answered differently. Nothing was changed."""
    TIMED_OUT = "timed_out"
    """The time for the answer is over."""
    FINAL = "final"
    """The task has ended, so nobody waits for the answer."""
    UNKNOWN = "unknown"
    """The task has asked no such question, or has been deleted."""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval, with what people need to know of its task."""

    number: int
    """Rises with the order in which questions were first asked."""
    task_id: str
    function: str
    queue: str
    tenant: str
    task_state: State | None
    """The state of a task that has ended; None if it has not."""
    key: str
    state: ApprovalState
    """`timed_out` also if the time is over and the task has not noticed yet."""
    question: str
    recipient: str
    data: bytes
    codec_tag: str
    run: int
    """The run that asked."""
    asks: int
    asked_at: float
    deadline_at: float | None
    answered_at: float | None
    answered_by: str
    comment: str
    answer: bytes | None
    """The encoded data of the answer; None if there is no answer."""

    @property
    def can_be_answered(self) -> bool:
        """Whether a person can answer now."""
        return self.state is ApprovalState.OPEN and self.task_state is None
