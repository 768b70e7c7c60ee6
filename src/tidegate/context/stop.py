"""The exceptions that end a function from inside."""

from __future__ import annotations


class TaskStopped(BaseException):
    """Raised inside a function that was asked to stop. Let it pass; no `except Exception` catches it."""


class TaskSuspended(BaseException):
    """Raised by `ctx.sleep` and other long waits. Let it pass; no `except Exception` catches it."""


class RetryRequested(BaseException):
    """Raised by `ctx.retry`. Let it pass; no `except Exception` catches it."""

    leaves_no_doubt = True
    """A step whose function raises it has failed: it is not in doubt."""
