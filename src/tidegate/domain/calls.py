"""The calls that one run made through transports: their usage, failures and results."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegate.domain.failure import Failure, Reason
from tidegate.domain.usage import CallTokens, Tokens, TokenUse, Usage, UsageTotals

FAILURES_KEPT = 8
"""A run remembers this many of its failed calls: the latest ones."""
SUCCEEDED, INTERRUPTED = "succeeded", "interrupted"
RECORD_CALLS_LABEL = "tidegate.record_calls"
"""The label of a task whose enqueue decided whether its calls are recorded."""
RECORD_CALLS_WORDS = {True: "on", False: "off"}
"""The values of that label."""


class FailedCall(NamedTuple):
    """One failed call. The failure of a run is matched to this error."""

    upstream: str
    reason: Reason
    status: int | None


class EndedCalls(NamedTuple):
    """How many calls of an upstream ended in one way."""

    upstream: str
    outcome: str
    """`succeeded`, `interrupted`, or the reason of the failure."""
    calls: int


@dataclass(frozen=True, slots=True)
class CallSummary:
    """The calls of one run, summed up when it ends."""

    count: int = 0
    """How many calls were sent through transports."""
    may_be_processed: bool = False
    """Whether one of the calls may have been processed, and so billed."""
    own_succeeded: bool | None = None
    """Whether the last call of the run's own upstream succeeded; None if there was no such call."""
    interrupted_upstream: str = ""
    """The upstream of a call that the end of the run interrupted before the call could report; empty without
    such a call."""
    failures: tuple[FailedCall, ...] = ()
    """The latest failed calls, oldest first."""
    used: UsageTotals | None = None
    """The usage of all calls together; None if no response stated any."""
    ended: tuple[EndedCalls, ...] = ()
    """The calls that ended, by upstream and outcome."""
    replayed: int = 0
    """How many calls were not sent, because an earlier run had recorded their responses."""
    first_call: CallTokens | None = None
    """The tokens of the first call of the run's own upstream; None if the run used no transport."""
    tokens: TokenUse | None = None
    """What the claim charged for the first call, and what that call used; None if no limit counts tokens."""

    @property
    def are_unknown(self) -> bool:
        """Whether the run used no transport. Whether it called its upstream in another way is not known."""
        return self.count == 0 and self.replayed == 0

    def with_charge(self, function: str, charged: Tokens, *, seconds_ago: float) -> CallSummary:
        """Return the summary with the tokens that the claim charged for the first call.

        Args:
            function: The function of the run.
            charged: What was charged.
            seconds_ago: How long ago it was charged.
        """
        return replace(self, tokens=TokenUse(function, charged, self.first_call, seconds_ago))

    def upstream_of(self, failure: Failure) -> str:
        """Return the upstream of the call that met this failure; empty if no transport's call did."""
        if failure.upstream:
            return failure.upstream
        kind = (failure.reason, failure.status)
        upstreams = (call.upstream for call in reversed(self.failures) if (call.reason, call.status) == kind)
        return next(upstreams, "")


NO_CALLS = CallSummary()


class CallLog:
    """Records the calls of one run. The run's transports write it; the executor reads it at the end."""

    # Every run has a log and many make no call: an empty log is its class's defaults, and costs nothing.
    _count = 0
    _may_be_processed = False
    _in_flight: dict[str, int]  # this and the next two are set by the first call
    _last_succeeded: dict[str, bool]
    _ended: Counter[tuple[str, str]]
    _interrupted = ""
    _failures: tuple[FailedCall, ...] = ()
    _used: UsageTotals | None = None
    _replayed = 0
    _first: CallTokens | None = None

    def record_replayed(self) -> None:
        """Record a call that was not sent, because an earlier run had recorded its response."""
        self._replayed += 1

    @property
    def awaits_answer(self) -> bool:
        """Whether a call is in flight, or nothing is known about calls because none used a transport."""
        return not self._count or any(self._in_flight.values())

    def begin(self, upstream: str) -> None:
        """Record a call that is sent now."""
        if not self._count:
            self._in_flight, self._last_succeeded, self._ended = defaultdict(int), {}, Counter()
        self._in_flight[upstream] += 1
        self._count += 1

    def record_unsent(self, upstream: str) -> None:
        """Remove a call that `begin` recorded but that was not sent."""
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
        first: CallTokens | None = None,
    ) -> None:
        """Record how a call ended.

        Args:
            upstream: The upstream of the call.
            failure: The failure; None if it succeeded.
            may_be_processed: Whether the upstream may have done the work.
            is_interrupted: Whether the call was cancelled, so its result is unknown. The end of the run is
                taken as the cause, unless another call ends later: then the task function cancelled it.
            usage: What the call consumed; None if its response does not say.
            first: The call's tokens, if it was the one that the claim of the run charged; else None.
        """
        if first is not None:
            self._first = first
        if usage is not None:
            self._used = (self._used or UsageTotals()).with_call(usage)
        self._in_flight[upstream] -= 1
        self._may_be_processed |= may_be_processed
        if is_interrupted:
            self._interrupted = upstream
            self._ended[upstream, INTERRUPTED] += 1
            return
        self._interrupted = ""
        self._last_succeeded[upstream] = failure is None
        self._ended[upstream, SUCCEEDED if failure is None else str(failure.reason)] += 1
        if failure is not None:
            call = FailedCall(upstream, failure.reason, failure.status)
            self._failures = (*self._failures, call)[-FAILURES_KEPT:]

    def summary(self, own: str) -> CallSummary:
        """Return the calls so far, summed up. Calls still in flight count as interrupted.

        Args:
            own: The run's own upstream; empty if there is none.
        """
        if not self._count:
            if not self._replayed:
                return NO_CALLS
            return CallSummary(replayed=self._replayed, first_call=CallTokens(Tokens()))
        in_flight = next((upstream for upstream, calls in self._in_flight.items() if calls > 0), "")
        return CallSummary(
            self._count,
            self._may_be_processed or bool(in_flight),
            self._last_succeeded.get(own) if own else None,
            in_flight or self._interrupted,
            self._failures,
            self._used,
            tuple(EndedCalls(*ended, calls) for ended, calls in sorted(self._ended.items())),
            self._replayed,
            self._first_call(own),
        )

    def _first_call(self, own: str) -> CallTokens:
        """Return the tokens of the first call of the run's own upstream: none if it made no such call."""
        if self._first is not None:
            return self._first
        return CallTokens(None if own in self._in_flight else Tokens())


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call ended."""

    failure: Failure | None = None
    """The failure; None if it succeeded."""
    status: int | None = None
    """The HTTP status; None if no response came."""
    usage: Usage | None = None
    """The usage; None if the response does not state it or is incomplete."""
    seconds: float = 0.0
    """From sending the request to the first byte of the response, or to the failure."""
    is_in_doubt: bool = False
    """The request was sent but has no definite response. Whether the call may have been processed and
    billed."""
