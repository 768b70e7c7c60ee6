"""Reports to the gates of an upstream and its keys how calls ended.

A rate limit, an outage or an account failure moves the gate at once, for all processes. This process starts
no further call until the gate may be open again.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidegate.calls.alerts import ParkAlerts
from tidegate.calls.gate_permit import GatePermit
from tidegate.domain.calls import CallResult
from tidegate.domain.failure import ACCOUNT_REASONS, CAPACITY_REASONS, CallFailure, Reason
from tidegate.domain.text import format_duration
from tidegate.events import EventBus, GateOpened, GateParked
from tidegate.limits.gate import MAX_PARK_SECONDS
from tidegate.limits.silence import NOT_ANSWERING, is_silent
from tidegate.limits.values import CallSlot, Gate, GateState, ParkedBy, key_gate_name
from tidegate.policy.retry import call_failure_of
from tidegate.store.protocol import Store

_log = logging.getLogger("tidegate.calls")

DEFAULT_PARK_SECONDS = 0.5
"""How long this process itself refuses calls if the server named no wait; after that the store's gate refuses
them. This time is shorter than the time between two probes, so that no probe is refused here."""
SUCCESS_REPORT_SECONDS = 1.0
"""The least time between two reports of success to the store, which reset the gate's count of failures."""


class CallReporter:
    """Reports to the gates of one upstream how calls ended, and remembers the state of its gate.

    Args:
        upstream: The upstream's name.
        opened_store: Returns the open store.
        clock: Returns monotonic seconds.
        rng: The source of jitter.
        events: Passes events to the subscribers.
    """

    def __init__(
        self,
        upstream: str,
        opened_store: Callable[[], Awaitable[Store]],
        *,
        clock: Callable[[], float],
        rng: random.Random,
        events: EventBus,
    ) -> None:
        self._upstream = upstream
        self._opened_store = opened_store
        self._clock = clock
        self._rng = rng
        self._events = events
        self._parked_until = 0.0
        """By `clock`."""
        self._parked_at: float | None = None
        """When this process parked the upstream, by `clock`; None if it flows."""
        self._alerts = ParkAlerts(clock)
        self.reason = ""
        """Why the upstream was last parked."""
        self._has_unreported_success = False
        """Whether some calls that succeeded are not yet reported to the store."""
        self._flushed_at = -math.inf
        """When successes were last reported to the store, by `clock`."""

    @property
    def parked_seconds(self) -> float:
        """How many more seconds this process takes the upstream for parked; 0 or less if it flows."""
        return self._parked_until - self._clock()

    def mark_flowing(self) -> None:
        """Record that the gate flows again."""
        self._alerts.forget(self._upstream)
        self._parked_until = 0.0
        self._emit_opened()

    async def report(self, end: CallResult, permit: GatePermit) -> None:
        """Report the end of a call to its gates. Call this once per call.

        A rate limit or account failure of one key parks that key. The upstream parks only when no key flows.
        """
        call_failure = self._call_failure(end, permit)
        if call_failure is None:
            await self._report_success(end, permit)
            return
        key = permit.key
        store = await self._opened_store()
        await self._flush(store)
        if key is not None and call_failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS:
            gate = key_gate_name(self._upstream, key.name)
            self._emit_parked(await store.report_failure(gate, call_failure), call_failure, key.name)
            if call_failure.needs_person:
                self._log_needs_person(f"key {gate}", gate, call_failure)
        else:  # the key is not at fault, so a probe of the key's gate ends without a result
            await self._report_probes(permit, is_good=False, others_than=self._upstream)
        found = await store.report_failure(self._upstream, call_failure)
        if call_failure.needs_person and found.parked_by is ParkedBy.ACCOUNT:
            what = f"upstream {self._upstream}" + ("" if key is None else ", of which no key is left,")
            self._log_needs_person(what, self._upstream, call_failure)
        self._apply_park(found, call_failure)

    def _call_failure(self, end: CallResult, permit: GatePermit) -> CallFailure | None:
        """Return what a failed call shows of the upstream; None if it succeeded or shows nothing."""
        call_failure = (
            None if end.failure is None else call_failure_of(end.failure, self._rng, task_id=permit.task_id)
        )
        return (
            None
            if call_failure is None
            else replace(call_failure, began_seconds_ago=permit.sent_seconds, upstream="")
        )

    async def _report_success(self, end: CallResult, permit: GatePermit) -> None:
        """Report, also to the gates that it probed, a call that shows no failure of the upstream.

        The first response of a probe opens the gate. Otherwise a function whose further calls wait for that
        gate would never return.
        """
        is_good = end.failure is None or end.failure.status is not None
        if is_good and self._parked_at is not None:
            sent_seconds = permit.sent_seconds
            if sent_seconds is not None and self._clock() - sent_seconds > self._parked_at:
                self._emit_opened()
        await self._report_probes(permit, is_good=is_good)
        if is_good and permit.is_first_call_of_probe and self._upstream not in permit.probed_gates:
            store = await self._opened_store()
            await store.report_probe(self._upstream, is_good=True, seconds=permit.seconds)
        elif is_good:
            self._has_unreported_success = True
            if self._clock() - self._flushed_at >= SUCCESS_REPORT_SECONDS:
                await self._flush(await self._opened_store())

    async def _flush(self, store: Store) -> None:
        """Report to the store that calls succeeded, if any did since the last report."""
        if self._has_unreported_success:
            self._has_unreported_success, self._flushed_at = False, self._clock()
            await store.report_success(self._upstream)

    async def _report_probes(self, permit: GatePermit, *, is_good: bool, others_than: str = "") -> None:
        """Report the result of a call to the gates that it probed."""
        for gate in dict.fromkeys(permit.probed_gates):
            if gate != others_than:
                store = await self._opened_store()
                await store.report_probe(gate, is_good=is_good, seconds=permit.seconds)

    async def report_unused(self, permit: GatePermit) -> None:
        """Report that a call was not made, so that another call may probe the gates in its place."""
        await self._report_probes(permit, is_good=False)

    async def report_ring(self, slot: CallSlot) -> None:
        """Park the upstream until its first key is free. Otherwise its tasks would start only to be refused.

        The store cannot decide this itself, because it also has flowing gates of keys that left the ring.
        """
        reason = next(
            (reason for reason in CAPACITY_REASONS | ACCOUNT_REASONS if reason == slot.reason),
            Reason.OVERLOADED,
        )
        call_failure = CallFailure(
            reason,
            wait_seconds=None if slot.opens_by_probe else slot.wait_seconds,
            needs_person=slot.wait_seconds is None,
            message="no key lets a call through",
            jitter=self._rng.random(),
            is_for_all_keys=True,
        )
        store = await self._opened_store()
        self._apply_park(await store.report_failure(self._upstream, call_failure), call_failure)

    async def report_silence(self, seconds: float) -> None:
        """Report for how long none of this process's calls in flight was answered."""
        message = f"no call was answered for {format_duration(seconds)}"
        call_failure = CallFailure(Reason.TIMEOUT, message=message, silent_seconds=seconds)
        store = await self._opened_store()
        gate = await store.report_failure(self._upstream, call_failure)
        if is_silent(gate):
            self._apply_park(gate, call_failure)

    def _apply_park(self, gate: Gate, call_failure: CallFailure) -> None:
        if gate.state is GateState.PARKED:
            reason = _reason(call_failure)
            is_known = self.parked_seconds > 0 and self.reason == reason
            wait = DEFAULT_PARK_SECONDS if call_failure.wait_seconds is None else call_failure.wait_seconds
            self._parked_until = self._clock() + min(wait, MAX_PARK_SECONDS)
            self.reason = reason
            if not is_known:
                self._parked_at = self._clock()
                self._emit_parked(gate, call_failure)

    def _emit_opened(self) -> None:
        if self._parked_at is not None:
            self._parked_at = None
            self._events.emit(GateOpened(upstream=self._upstream, key=""))

    def _emit_parked(self, gate: Gate, call_failure: CallFailure, key: str = "") -> None:
        if gate.state is GateState.PARKED and self._events.wants(GateParked):
            self._events.emit(
                GateParked(
                    upstream=self._upstream,
                    key=key,
                    reason=_reason(call_failure),
                    seconds=None if call_failure.needs_person else call_failure.wait_seconds,
                    needs_person=call_failure.needs_person,
                )
            )

    def _log_needs_person(self, what: str, gate: str, call_failure: CallFailure) -> None:
        """Log, once per park, that a person must act."""
        if self._alerts.is_due(gate, str(call_failure.reason)):
            _log.error(
                "%s is parked until a person opens it (%s: %s). Fix the account or key, then: "
                "tidegate upstreams open '%s'",
                what,
                call_failure.reason,
                call_failure.message[:200],
                gate,
            )


def _reason(call_failure: CallFailure) -> str:
    """Return the reason that the gate shows for a failure."""
    return str(call_failure.reason) if call_failure.silent_seconds is None else NOT_ANSWERING
