"""Decides which runs are charged as attempts. `retry` and `crash` use this module and apply its rules.

- A run with a call that may have been processed is charged.
- Exceptions: a crash or loss, which have their own limits; the first `INTERRUPTED_LIMIT` runs that a shutdown
  or another task's crash interrupted; and `ctx.retry(charge=False)` and `RetryAfter` of the task itself.
- A run whose calls were all refused before any work was done is free `UNCHARGED_LIMIT` times per task.
- A wait for our own limits and gates is free, unless an earlier call of the run may have been processed.
"""

from __future__ import annotations

from tidegate.domain.calls import CallResult, CallSummary
from tidegate.domain.failure import ACCOUNT_REASONS, Failure, Reason
from tidegate.domain.outcome import Charge, Counters

UNCHARGED_LIMIT = 20
"""This many runs of a task that were refused before any work was done are not charged."""
INTERRUPTED_LIMIT = 5
"""This many runs of a task that were interrupted during a call are not charged."""

_UNREAD_REASONS = frozenset(
    {
        Reason.INVALID_REQUEST,
        Reason.AUTH,
        Reason.NOT_FOUND,
        Reason.CONTEXT_LENGTH,
        Reason.TOO_LARGE,
        Reason.QUOTA,
    }
)
"""For these reasons a provider refuses a request without processing it."""


def is_refused_before_work(failure: Failure) -> bool:
    """Whether a failure shows that nothing was processed: nothing was sent, or the request was refused.

    An overload after the response has begun (status 200, in a stream) may have been billed.
    """
    if failure.is_refusal or failure.is_unsent:
        return True
    if failure.reason is Reason.RATE_LIMIT or failure.reason in ACCOUNT_REASONS:
        return not _has_begun(failure)
    return failure.reason is Reason.OVERLOADED and not _has_begun(failure)


def may_be_processed(end: CallResult) -> bool:
    """Whether the upstream may have processed the call, and bill it."""
    failure = end.failure
    if failure is None:
        return True
    if end.status is None and failure.status is None:
        return end.is_in_doubt and not failure.is_unsent
    if end.status is not None and 200 <= end.status < 300:
        return True
    return failure.reason not in _UNREAD_REASONS and not is_refused_before_work(failure)


def charge_for_failure(failure: Failure, calls: CallSummary, counters: Counters) -> Charge:
    """Return which counter a failed run adds to.

    Args:
        failure: The failure that ended the run.
        calls: The calls that the run made through transports.
        counters: What the task had spent before this run.
    """
    if failure.is_stated:
        return _park_or_attempt(counters) if failure.reason is Reason.RATE_LIMIT else Charge.ATTEMPT
    if calls.may_be_processed or not is_refused_before_work(failure):
        return Charge.ATTEMPT
    return Charge.WAIT if failure.is_refusal else _park_or_attempt(counters)


def charge_for_release(counters: Counters, *, may_have_called: bool) -> Charge:
    """Return the counter to which a run adds when it is released unfinished.

    Args:
        counters: What the task had spent before this run.
        may_have_called: Whether the run made a call that may have been processed, in flight or ended.
    """
    if not may_have_called:
        return Charge.RELEASE
    return Charge.INTERRUPTED if counters.interruptions < INTERRUPTED_LIMIT else Charge.ATTEMPT


def _park_or_attempt(counters: Counters) -> Charge:
    return Charge.PARK if counters.parks < UNCHARGED_LIMIT else Charge.ATTEMPT


def _has_begun(failure: Failure) -> bool:
    return failure.status is not None and 200 <= failure.status < 300
