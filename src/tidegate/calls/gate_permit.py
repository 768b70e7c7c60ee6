"""The right to make one call, as an upstream's `GatePermitSource` grants it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tidegate.calls.keys import Key
from tidegate.calls.permits import MAX_PERMIT_SECONDS, PermitRequest
from tidegate.calls.results import run_in_background
from tidegate.context import current_context
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Fence
from tidegate.domain.usage import HeaderLimit
from tidegate.limits.values import PermitRecord
from tidegate.policy.charge import may_be_processed

if TYPE_CHECKING:
    pass

PERMIT_MARGIN_SECONDS = 10.0
"""What the store holds outlasts the call's time limit by this, so that no call outlasts it."""


class EndReports(Protocol):
    """Reports the ends of calls to the gates."""

    async def report(self, end: CallResult, permit: GatePermit) -> None:
        """Report how a call ended."""

    async def report_unused(self, permit: GatePermit) -> None:
        """Report that a call was not made."""


class PermitOwner(Protocol):
    """What granted a permit, as far as the permit uses it."""

    @property
    def upstream(self) -> str:
        """The name of the upstream."""

    @property
    def reporter(self) -> EndReports:
        """Where the end of the call is reported."""

    def now(self) -> float:
        """Return the present moment, in monotonic seconds."""

    def observe_limits(
        self, seen: Sequence[HeaderLimit], *, ask: PermitRequest, key: Key | None, sent_at: float | None
    ) -> None:
        """Take note of the limits that a response showed."""

    async def extend(self, permit_ids: Sequence[str], seconds: float) -> None:
        """Extend the leases of these permit records."""

    async def end(self, permit: GatePermit) -> None:
        """Release what the call had in flight."""


class GatePermit:
    """The right to make one call."""

    def __init__(self, permits: PermitOwner, ask: PermitRequest) -> None:
        self._permits = permits
        self._ask = ask
        self._seconds = min(ask.seconds, MAX_PERMIT_SECONDS) + PERMIT_MARGIN_SECONDS
        self._sent_at: float | None = None
        self._ended = False
        run = current_context()
        self._calls = None if run is None else run.calls
        self.fence: Fence | None = ask.fence if ask.is_own_upstream else None
        """The run that may stand for it."""
        self.key: Key | None = None
        """The one that was chosen; None: the client's own is used."""
        self.permit_ids: list[str] = []
        """What the store counts of it as in flight, or may: its answer can have been lost."""
        self.good_until = float("inf")
        """By the clock: before then none of them expires."""
        self.probed_gates: list[str] = []
        """The held gates it was let through to try, whose probes nobody else tells of."""
        self._began_at = permits.now()

    @property
    def api_key(self) -> str | None:
        """The secret of the key that was chosen; None: the client's own is used."""
        return None if self.key is None else self.key.secret()

    def new_record(self) -> PermitRecord:
        """Return what to ask the store for, so that it counts the call until its time limit is over."""
        hold = PermitRecord(uuid.uuid4().hex, self._seconds)
        self.permit_ids.append(hold.permit_id)
        return hold

    async def mark_sending(self) -> None:
        """Remember when: what the answer shows of limits is placed by it. The run has called from now on."""
        if self._calls is not None and self._sent_at is None:
            self._calls.begin(self._permits.upstream)
        self._sent_at = self._permits.now()

    def observe_limits(self, seen: Sequence[HeaderLimit]) -> None:
        """Hand on what the headers show."""
        if seen:
            self._permits.observe_limits(seen, ask=self._ask, key=self.key, sent_at=self._sent_at)

    def extend_lease(self, seconds: float) -> None:
        """Hold on to the permit for so long; the store is asked at most once in so many seconds."""
        seconds, now = min(seconds, MAX_PERMIT_SECONDS), self._permits.now()
        if self.permit_ids and now + seconds + PERMIT_MARGIN_SECONDS / 2 > self.good_until:
            lease_seconds = 2 * seconds + PERMIT_MARGIN_SECONDS
            self.good_until = now + lease_seconds
            run_in_background(self._permits.extend(tuple(self.permit_ids), lease_seconds))

    @property
    def task_id(self) -> str:
        """The task it is made for; empty outside tasks."""
        return "" if self._ask.fence is None else self._ask.fence.task_id

    @property
    def on_last_attempt(self) -> bool:
        """Whether its task has one attempt left."""
        return self._ask.on_last_attempt

    @property
    def is_first_call_of_probe(self) -> bool:
        """Whether its run tries the upstream, and this call is the first to tell."""
        return self._ask.is_probe and self._ask.is_charged_at_claim

    def mark_probe(self, gate: str) -> None:
        """Note that it was let through a held gate, just now, to try it."""
        self.probed_gates.append(gate)
        self._began_at = self._permits.now()

    @property
    def seconds(self) -> float:
        """How long ago it was asked for, or let through a held gate."""
        return self._permits.now() - self._began_at

    @property
    def sent_seconds(self) -> float | None:
        """How long ago it was sent; None: it was not."""
        return None if self._sent_at is None else self._permits.now() - self._sent_at

    async def settle(self, end: CallResult) -> None:
        """Tell the gates how the call ended, once; only then may another take its place."""
        if self._ended:
            return
        self._ended = True
        self._note_end(end)
        try:
            await self._permits.reporter.report(end, self)
        finally:
            await self._permits.end(self)

    async def release(self) -> None:
        """Give the permit back: nothing was sent."""
        if self._ended:
            return
        self._ended = True
        if self._calls is not None and self._sent_at is not None:
            self._calls.record_unsent(self._permits.upstream)
        try:
            await self._permits.reporter.report_unused(self)
        finally:
            await self._permits.end(self)

    def _note_end(self, end: CallResult) -> None:
        """Note how the call ended for the end of its run, which may come before the store has answered."""
        if self._calls is None or self._sent_at is None:
            return
        self._calls.end(
            self._permits.upstream,
            end.failure,
            may_be_processed=may_be_processed(end),
            is_interrupted=is_interrupted(end),
            usage=end.usage,
        )


def is_interrupted(end: CallResult) -> bool:
    """Whether a call was ended by us, in the middle: it shows nothing of the upstream."""
    failure = end.failure
    return failure is not None and failure.reason is Reason.CANCELLED and failure.status is None
