"""What the ends of calls tell the gates of their upstream and its keys.

What a call learns of the upstream's capacity or account moves the gate at once, for all processes; in this
one no further call is let out until the gate may be open again.
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
from tidegate.limits.gate import MAX_PARK_SECONDS
from tidegate.limits.values import CallSlot, Gate, GateState, ParkedBy, key_gate_name
from tidegate.policy.retry import call_failure_of
from tidegate.store.protocol import Store

_log = logging.getLogger("tidegate.calls")

DEFAULT_PARK_SECONDS = 0.5
"""How long this process holds calls back where the server named no wait; then the gate alone does. Less than
between two probes: none of them is for it to refuse."""
SUCCESS_REPORT_SECONDS = 1.0
"""Between two writes that say that calls went well, which end what failures began."""


class CallReporter:
    """Tells the gates of one upstream, and knows what this process last heard of its own.

    Args:
        upstream: Its name.
        opened_store: Returns the store, open.
        clock: Monotonic seconds.
        rng: For jitter.
    """

    def __init__(
        self,
        upstream: str,
        opened_store: Callable[[], Awaitable[Store]],
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._upstream = upstream
        self._opened_store = opened_store
        self._clock = clock
        self._rng = rng
        self._parked_until = 0.0
        """By `clock`."""
        self._alerts = ParkAlerts(clock)
        self.reason = ""
        """Why it was last parked."""
        self._has_unreported_success = False
        """Whether calls went well that the store does not know of yet."""
        self._flushed_at = -math.inf
        """By `clock`: when it last heard of such."""

    @property
    def parked_seconds(self) -> float:
        """How much longer the upstream is parked, as far as this process knows; not above 0: it is not."""
        return self._parked_until - self._clock()

    def mark_flowing(self) -> None:
        """Know from now on that the gate flows."""
        self._alerts.forget(self._upstream)
        self._parked_until = 0.0

    async def report(self, end: CallResult, permit: GatePermit) -> None:
        """Let the end of a call move its gates: once, and at once, for all processes.

        What one key lacks parks that key; the upstream only when none of its keys flows any more.
        """
        call_failure = self._signal(end, permit)
        if call_failure is None:
            await self._report_success(end, permit)
            return
        key = permit.key
        store = await self._opened_store()
        await self._flush(store)
        if key is not None and call_failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS:
            gate = key_gate_name(self._upstream, key.name)
            await store.report_failure(gate, call_failure)
            if call_failure.needs_person:
                self._log_needs_person(f"key {gate}", gate, call_failure)
        else:  # no fault of the key's: its own gate is left to the next
            await self._report_probes(permit, is_good=False, others_than=self._upstream)
        found = await store.report_failure(self._upstream, call_failure)
        if call_failure.needs_person and found.parked_by is ParkedBy.ACCOUNT:
            what = f"upstream {self._upstream}" + ("" if key is None else ", of which no key is left,")
            self._log_needs_person(what, self._upstream, call_failure)
        self._apply_park(found, call_failure)

    def _signal(self, end: CallResult, permit: GatePermit) -> CallFailure | None:
        """Return what a call that failed shows of the upstream; None if it went well, or shows nothing."""
        call_failure = (
            None if end.failure is None else call_failure_of(end.failure, self._rng, task_id=permit.task_id)
        )
        return (
            None
            if call_failure is None
            else replace(call_failure, began_seconds_ago=permit.sent_seconds, upstream="")
        )

    async def _report_success(self, end: CallResult, permit: GatePermit) -> None:
        """Let a call that shows nothing ill open held gates that it tried, or leave them to the next.

        The first answer opens: a body whose further calls wait for the gate would never come to its end.
        """
        is_good = end.failure is None or end.failure.status is not None
        await self._report_probes(permit, is_good=is_good)
        if is_good and permit.is_first_call_of_probe and self._upstream not in permit.probed_gates:
            store = await self._opened_store()
            await store.report_probe(self._upstream, is_good=True, seconds=permit.seconds)
        elif is_good:
            self._has_unreported_success = True
            if self._clock() - self._flushed_at >= SUCCESS_REPORT_SECONDS:
                await self._flush(await self._opened_store())

    async def _flush(self, store: Store) -> None:
        """Tell the store, at most once in a while, that calls went well since the last time."""
        if self._has_unreported_success:
            self._has_unreported_success, self._flushed_at = False, self._clock()
            await store.report_success(self._upstream)

    async def _report_probes(self, permit: GatePermit, *, is_good: bool, others_than: str = "") -> None:
        """Tell the held gates that a call was let through to try how it went."""
        for gate in dict.fromkeys(permit.probed_gates):
            if gate != others_than:
                store = await self._opened_store()
                await store.report_probe(gate, is_good=is_good, seconds=permit.seconds)

    async def report_unused(self, permit: GatePermit) -> None:
        """Leave the held gates that a call was to try, and did not, to the next."""
        await self._report_probes(permit, is_good=False)

    async def report_ring(self, slot: CallSlot) -> None:
        """Park the upstream until its first key is free, or each of its tasks would start to find that out.

        The store cannot know: keys that were taken out of the ring, or are others', have gates that flow.
        """
        reason = next(
            (one for one in CAPACITY_REASONS | ACCOUNT_REASONS if one == slot.reason), Reason.OVERLOADED
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

    def _apply_park(self, gate: Gate, call_failure: CallFailure) -> None:
        if gate.state is GateState.PARKED:
            wait = DEFAULT_PARK_SECONDS if call_failure.wait_seconds is None else call_failure.wait_seconds
            self._parked_until = self._clock() + min(wait, MAX_PARK_SECONDS)
            self.reason = str(call_failure.reason)

    def _log_needs_person(self, what: str, gate: str, call_failure: CallFailure) -> None:
        """Report, once a park, that something waits for a person."""
        if self._alerts.is_due(gate, str(call_failure.reason)):
            _log.error(
                "%s is parked until a person opens it (%s: %s). Mend the account or key, then: "
                "tidegate upstreams open '%s'",
                what,
                call_failure.reason,
                call_failure.message[:200],
                gate,
            )
