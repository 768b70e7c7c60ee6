"""The exceptions that a task raises to state how to treat its failure.

These exceptions are not errors of Tidegate.
"""

from __future__ import annotations

from tidegate.domain.readers import Seconds, wait_option


class Transient(Exception):  # noqa: N818 - a verdict that a task raises, named as such
    """Raised by a task: a retry may succeed. The task is retried, and an attempt is charged."""


class Permanent(Exception):  # noqa: N818
    """Raised by a task: a retry cannot help. The task is dead at once, without a retry.

    Args:
        args: The message, kept in the task's history.
        reason: A value of `Reason`, such as `invalid_request` or `content_policy`, by which the dead letter
            can be found. Default: the reason of the error it was raised from, if that has one, else
            `rejected`.
    """

    def __init__(self, *args: object, reason: str = "") -> None:
        self.reason = reason
        super().__init__(*args)


class RetryAfter(Transient):
    """Raised by a task: the upstream asked to wait. No attempt is charged.

    Args:
        after: The shortest wait: seconds, a timedelta, or text such as `30s`. A wait above a day is cut to a
            day. A negative wait, such as the time until a moment that has passed, counts as 0.
        message: The message, kept in the task's history.

    Raises:
        OptionError: The wait is not a duration.
    """

    def __init__(self, after: Seconds, message: str = "") -> None:
        self.seconds = wait_option("after", after)
        super().__init__(message or f"asked to wait {self.seconds:g} s")
