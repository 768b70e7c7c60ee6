"""The calls that one run made through transports: what they cost, and which gates they moved already."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.failure import Failure, Reason
from tidegate.domain.usage import Usage, UsageTotals

FAILURES_KEPT = 8
"""Failed calls of one run that are remembered, the latest ones."""


class FailedCall(NamedTuple):
    """One failed call, by which the failure of the run is recognised."""

    upstream: str
    reason: Reason
    status: int | None


@dataclass(frozen=True, slots=True)
class CallSummary:
    """What the calls of one run came to, when it ended."""

    count: int = 0
    """Calls that were sent, or were to be sent; 0: the run used no transport."""
    may_be_processed: bool = False
    """One of them may have been processed, and so billed."""
    own_succeeded: bool | None = None
    """Whether the last call of the run's own upstream went well; None: it made none."""
    interrupted_upstream: str = ""
    """The upstream of a call that the end of the run cut off, which has not moved its gate; empty: none."""
    failures: tuple[FailedCall, ...] = ()
    """The latest ones, oldest first."""
    used: UsageTotals | None = None
    """What they consumed together; None: no answer stated it."""

    def upstream_of(self, failure: Failure) -> str:
        """Return the upstream of the call that met this failure; empty: no call of a transport did."""
        if failure.upstream:
            return failure.upstream
        met = (failure.reason, failure.status)
        found = (call.upstream for call in reversed(self.failures) if (call.reason, call.status) == met)
        return next(found, "")


NO_CALLS = CallSummary()


class CallLog:
    """Written by the transports that a run's body uses, read once when the run ends."""

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._count = 0
        self._may_be_processed = False
        self._last_was_good: dict[str, bool] = {}
        self._cut = ""
        self._failures: list[FailedCall] = []
        self._used: UsageTotals | None = None

    def begin(self, upstream: str) -> None:
        """Note a call that is sent now."""
        self._in_flight[upstream] += 1
        self._count += 1

    def record_unsent(self, upstream: str) -> None:
        """Note that a call was not sent after all."""
        self._in_flight[upstream] -= 1
        self._count -= 1

    def end(
        self,
        upstream: str,
        failure: Failure | None,
        *,
        may_be_processed: bool,
        is_interrupted: bool,
        usage: Usage | None = None,
    ) -> None:
        """Note how a call ended.

        Args:
            upstream: Whose call it was.
            failure: None: it went well.
            may_be_processed: Whether the other side may have done the work.
            is_interrupted: It was cut off, so its result is not known. By the end of the run, unless
                another call ends otherwise after it: then the task function itself cut it off.
            usage: What it consumed; None: its answer does not say.
        """
        if usage is not None:
            self._used = (self._used or UsageTotals()).with_call(usage)
        self._in_flight[upstream] -= 1
        self._may_be_processed |= may_be_processed
        if is_interrupted:
            self._cut = upstream
            return
        self._cut = ""
        self._last_was_good[upstream] = failure is None
        if failure is not None:
            call = FailedCall(upstream, failure.reason, failure.status)
            self._failures = [*self._failures, call][-FAILURES_KEPT:]

    def summary(self, own: str) -> CallSummary:
        """Return what the calls came to so far; those still in flight count as cut.

        Args:
            own: The run's own upstream; empty for none.
        """
        flying = next((upstream for upstream, calls in self._in_flight.items() if calls > 0), "")
        return CallSummary(
            self._count,
            self._may_be_processed or bool(flying),
            self._last_was_good.get(own) if own else None,
            flying or self._cut,
            tuple(self._failures),
            self._used,
        )


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call ended."""

    failure: Failure | None = None
    """None: it succeeded."""
    status: int | None = None
    """The HTTP status; None where no answer came."""
    usage: Usage | None = None
    """None: the answer does not say, or never came whole."""
    seconds: float = 0.0
    """From sending the request to the first byte of the answer, or to its failure."""
    is_in_doubt: bool = False
    """The request was sent and has no definite answer: it may have been done, and billed."""
