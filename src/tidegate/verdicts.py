"""What a task raises to say how its failure should be treated. These are no errors of Tidegate."""

from __future__ import annotations

from tidegate.readers import Seconds, wait_option


class Transient(Exception):  # noqa: N818 - a verdict that a task raises, named as such
    """Raised by a task: the same attempt may succeed later. Retried, and charged as an attempt."""


class Permanent(Exception):  # noqa: N818
    """Raised by a task: trying again cannot help. The task is dead at once, no retry spent.

    Args:
        args: The message, kept in the task's history.
        reason: A word of `Reason`, such as `invalid_request` or `content_policy`, under which the dead letter
            is found. Unless given: that of the error it was raised from, if that has one, else `rejected`.
    """

    def __init__(self, *args: object, reason: str = "") -> None:
        self.reason = reason
        super().__init__(*args)


class RetryAfter(Transient):
    """Raised by a task: the other side asked for a wait. Charges no attempt.

    Args:
        after: The shortest acceptable wait: seconds, a timedelta, or text such as `30s`. A day at most is
            honoured; one below 0, such as the time until a moment that has passed, is none.
        message: Kept in the task's history.

    Raises:
        OptionError: The wait is no duration.
    """

    def __init__(self, after: Seconds, message: str = "") -> None:
        self.seconds = wait_option("after", after)
        super().__init__(message or f"asked to wait {self.seconds:g} s")
