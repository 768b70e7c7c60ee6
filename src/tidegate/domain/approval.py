"""Approvals: questions that a task asks a person, and their answers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tidegate.domain.readers import wrong

KEY_LENGTH = 200
"""The most characters of an approval's key."""
_KEY = re.compile(r"\w[\w.:@-]*")
_KEY_RULE = "use letters, digits and . : @ _ - in 1 to 200 characters, a letter or digit first"
QUESTION_LENGTH = 1_000
NAME_LENGTH = 200
"""The most characters of a name of a person."""
COMMENT_LENGTH = 2_000
DATA_BYTES = 65_536
"""The most bytes of encoded data, of a question and of an answer."""


class ApprovalState(StrEnum):
    """The state of an approval."""

    OPEN = "open"
    """Nobody has answered, and there is time left."""
    APPROVED = "approved"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    """Nobody answered in time."""


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer to `ctx.approve`. True if the question was approved: `if await ctx.approve(…)`."""

    approved: bool
    by: str
    """Who answered; empty if nobody did in time."""
    at: datetime
    """When, in UTC. After a time-out: when the time was over."""
    comment: str = ""
    data: Any = None
    """The data that came with the answer."""
    timed_out: bool = False
    """Whether nobody answered in time. Only with `on_timeout="reject"`."""

    def __bool__(self) -> bool:
        """Return whether the question was approved."""
        return self.approved


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question that a task asks a person."""

    task_id: str
    key: str
    """Identifies the question within its task."""
    question: str
    data: Any
    """The data that the task gave with the question."""
    to: str
    """Whom the task asks; empty if it names nobody."""
    asked_at: datetime
    until: datetime | None
    """When the time for the answer is over; None: never."""
    link: str
    """The link to the page on which a person answers; empty if links are not configured."""


def checked_key(key: object) -> str:
    """Return the key of an approval.

    Raises:
        OptionError: No approval can have this key.
    """
    if not isinstance(key, str) or len(key) > KEY_LENGTH or not _KEY.fullmatch(key):
        raise wrong("key", key, _KEY_RULE)
    return key


def derived_key(question: str, position: int) -> str:
    """Return the key of a question without an explicit one.

    Args:
        question: The question.
        position: The number of the question among the equal ones of its run, from 1.
    """
    return f"{hashlib.sha256(question.encode()).hexdigest()[:8]}-{position}"
