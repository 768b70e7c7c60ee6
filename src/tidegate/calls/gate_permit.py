"""`GatePermit`: the right to make one call, granted by an upstream's `GatePermitSource`."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from tidegate.calls.keys import Key
from tidegate.calls.permits import MAX_PERMIT_SECONDS, PermitRequest
from tidegate.calls.results import run_in_background
from tidegate.calls.silence import SilenceWatch
from tidegate.calls.token_settlements import ChargedTokens, TokenSettlements
from tidegate.context import current_context
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Fence
from tidegate.domain.usage import CallTokens, ExpectedTokens, HeaderLimit, Tokens
from tidegate.events import CallFinished, CallStarted, EventBus
from tidegate.limits.values import PermitRecord
from tidegate.policy.charge import may_be_processed
from tidegate.steps.current import current_step

PERMIT_MARGIN_SECONDS = 10.0
"""A permit's lease is this much longer than the call's time limit, so that no call outlasts its permit."""

_numbers = itertools.count(1)
"""The counter that numbers the calls of this process."""


class EndReports(Protocol):
    """Reports to the gates how calls ended."""

    async def report(self, end: CallResult, permit: GatePermit) -> None:
        """Report how a call ended."""

    async def report_unused(self, permit: GatePermit) -> None:
        """Report that a call was not made."""


class PermitOwner(Protocol):
    """The part of a permit source that its permits use."""

    @property
    def upstream(self) -> str:
        """The name of the upstream."""

    @property
    def events(self) -> EventBus:
        """Passes events to the subscribers."""

    @property
    def reporter(self) -> EndReports:
        """Reports the end of the call."""

    @property
    def silence(self) -> SilenceWatch:
        """Notices that the upstream answers none of the calls."""

    def now(self) -> float:
        """Return the current time in monotonic seconds."""

    def observe_limits(
        self, seen: Sequence[HeaderLimit], *, request: PermitRequest, key: Key | None, sent_at: float | None
    ) -> None:
        """Record the limits that a response showed."""

    @property
    def settlements(self) -> TokenSettlements:
        """Settles the tokens that were charged for the call."""

    async def extend(self, permit_ids: Sequence[str], seconds: float) -> None:
        """Extend the leases of these permit records."""

    async def end(self, permit: GatePermit) -> None:
        """Release the place in flight of this call."""


class GatePermit:
    """The right to make one call."""

    def __init__(self, permits: PermitOwner, request: PermitRequest) -> None:
        self._permits = permits
        self._request = request
        self._seconds = min(request.seconds, MAX_PERMIT_SECONDS) + PERMIT_MARGIN_SECONDS
        self._sent_at: float | None = None
        self._number = next(_numbers)
        self._ended = False
        run = current_context()
        self._calls = None if run is None else run.calls
        self._step = current_step()
        self.fence: Fence | None = request.fence if request.is_own_upstream else None
        """The run whose place in flight the call may use; None outside a run."""
        self.key: Key | None = None
        """The API key that was chosen; None if the client's own key is used."""
        self.permit_ids: list[str] = []
        """The permits that the store recorded for the call, or may have recorded if its reply was lost."""
        self.good_until = float("inf")
        """Until when all of these permits hold, by the clock."""
        self.charged_tokens: list[ChargedTokens] = []
        """The tokens that gates charged for this call alone."""
        self.probed_gates: list[str] = []
        """The gates that this call probes. No other permit reports the result of these probes."""
        self._began_at = permits.now()

    @property
    def api_key(self) -> str | None:
        """The secret of the chosen API key; None if the client's own key is used."""
        return None if self.key is None else self.key.secret()

    def new_record(self) -> PermitRecord:
        """Return a new permit record for the store. The record's lease covers the call's time limit."""
        record = PermitRecord(uuid.uuid4().hex, self._seconds, self._request.fence)
        self.permit_ids.append(record.permit_id)
        return record

    async def mark_sending(self) -> None:
        """Record when the call was sent. From now on the run counts as having called the upstream."""
        if self._sent_at is None:
            if self._calls is not None:
                self._calls.begin(self._permits.upstream)
            if self._step is not None:
                self._step.call_sent(self._permits.upstream)
            if self._permits.events.wants(CallStarted):
                self._permits.events.emit(CallStarted(**self._facts()))
        self._sent_at = self._permits.now()
        self._permits.silence.begin(self._number)

    def observe_limits(self, seen: Sequence[HeaderLimit]) -> None:
        """Pass on the limits that the response's headers show. The response has begun."""
        self._permits.silence.end(self._number, is_answer=True)
        if seen:
            self._permits.observe_limits(seen, request=self._request, key=self.key, sent_at=self._sent_at)

    def extend_lease(self, seconds: float) -> None:
        """Keep the permit for at least `seconds` more. Writes to the store at most once in that time."""
        seconds, now = min(seconds, MAX_PERMIT_SECONDS), self._permits.now()
        if self.permit_ids and now + seconds + PERMIT_MARGIN_SECONDS / 2 > self.good_until:
            lease_seconds = 2 * seconds + PERMIT_MARGIN_SECONDS
            self.good_until = now + lease_seconds
            run_in_background(self._permits.extend(tuple(self.permit_ids), lease_seconds))

    @property
    def task_id(self) -> str:
        """The task that makes the call; empty outside tasks."""
        return "" if self._request.fence is None else self._request.fence.task_id

    @property
    def expected_tokens(self) -> ExpectedTokens:
        """What is known of the call's tokens."""
        return self._request.expected_tokens

    @property
    def on_last_attempt(self) -> bool:
        """Whether the task that makes the call has one attempt left."""
        return self._request.on_last_attempt

    @property
    def is_first_call_of_probe(self) -> bool:
        """Whether the call's run is a probe and this is the run's first call."""
        return self._request.is_probe and self._request.is_charged_at_claim

    def mark_probe(self, gate: str) -> None:
        """Record that the call was admitted just now as a probe of this gate."""
        self.probed_gates.append(gate)
        self._began_at = self._permits.now()

    @property
    def seconds(self) -> float:
        """Seconds since the permit was requested, or since the call was admitted as a probe."""
        return self._permits.now() - self._began_at

    @property
    def sent_seconds(self) -> float | None:
        """Seconds since the call was sent; None if it was not sent."""
        return None if self._sent_at is None else self._permits.now() - self._sent_at

    async def settle(self, end: CallResult) -> None:
        """Report to the gates how the call ended, then release its place. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        is_answer = end.failure is None or end.failure.status is not None
        self._permits.silence.end(self._number, is_answer=is_answer)
        self._note_end(end)
        self._emit_end(end)
        self._permits.settlements.add(self._request.function, self.charged_tokens, self._tokens_of(end))
        try:
            await self._permits.reporter.report(end, self)
        finally:
            await self._permits.end(self)

    async def release(self) -> None:
        """Release the permit of a call that was not sent. Does nothing after `settle`."""
        if self._ended:
            return
        self._ended = True
        self._permits.silence.end(self._number, is_answer=False)
        if self._calls is not None and self._sent_at is not None:
            self._calls.record_unsent(self._permits.upstream)
        if self._step is not None and self._sent_at is not None:
            self._step.call_not_sent()
        self._emit_end(CallResult())
        self._permits.settlements.add(self._request.function, self.charged_tokens, CallTokens(Tokens()))
        try:
            await self._permits.reporter.report_unused(self)
        finally:
            await self._permits.end(self)

    def _emit_end(self, end: CallResult) -> None:
        if self._sent_at is not None and self._permits.events.wants(CallFinished):
            self._permits.events.emit(
                CallFinished(
                    **self._facts(),
                    seconds=self._permits.now() - self._sent_at,
                    first_byte_seconds=end.seconds,
                    status=end.status,
                    failure=end.failure,
                    usage=end.usage,
                    is_in_doubt=end.is_in_doubt,
                )
            )

    def _facts(self) -> dict[str, Any]:
        """Return the facts that both events of the call contain."""
        request = self._request
        return {
            "call": self._number,
            "upstream": self._permits.upstream,
            "provider": request.provider,
            "operation": request.operation,
            "model": request.model,
            "max_tokens": request.output_tokens,
            "task_id": self.task_id,
            "run": 0 if request.fence is None else request.fence.run,
            "function": request.function,
        }

    def _note_end(self, end: CallResult) -> None:
        """Record the result in the run first, because the run may end before the store has replied."""
        if self._sent_at is None:
            return
        if self._step is not None:
            self._step.call_ended(
                is_in_doubt=end.is_in_doubt or is_interrupted(end),
                request_id="" if end.failure is None else end.failure.request_id,
                usage=end.usage,
            )
        if self._calls is None:
            return
        self._calls.end(
            self._permits.upstream,
            end.failure,
            may_be_processed=may_be_processed(end),
            is_interrupted=is_interrupted(end),
            usage=end.usage,
            first=self._tokens_of(end) if self._request.is_charged_at_claim else None,
        )

    def _tokens_of(self, end: CallResult) -> CallTokens:
        """Return the tokens of the call: none if it was refused, unknown if the response lacks them."""
        if end.usage is not None:
            return self._request.counting.tokens_of(end.usage, self._request.output_tokens)
        return CallTokens(None if may_be_processed(end) or is_interrupted(end) else Tokens())


def is_interrupted(end: CallResult) -> bool:
    """Whether the call was cancelled before its response. Such a call shows nothing about the upstream."""
    failure = end.failure
    return failure is not None and failure.reason is Reason.CANCELLED and failure.status is None
