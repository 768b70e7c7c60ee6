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

from tidegate.domain.failure import Reason
from tidegate.domain.permit import CallEnd
from tidegate.domain.upstream import Gate, GateState, ParkedBy, Signal, Slot, key_gate
from tidegate.policy.gate import ACCOUNT, CAPACITY, LONGEST_PARK_SECONDS
from tidegate.policy.retry import signal_of
from tidegate.store.protocol import Store
from tidegate.upstream.alerts import ParkAlerts
from tidegate.upstream.granted import GatePermit

_log = logging.getLogger("tidegate.upstream")

UNNAMED_WAIT_SECONDS = 0.5
"""How long this process holds calls back where the server named no wait; then the gate alone does. Less than
between two probes: none of them is for it to refuse."""
ANSWERS_SECONDS = 1.0
"""Between two writes that say that calls went well, which end what failures began."""


class Telling:
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
        self._has_answered = False
        """Whether calls went well that the store does not know of yet."""
        self._flushed_at = -math.inf
        """By `clock`: when it last heard of such."""

    @property
    def parked_seconds(self) -> float:
        """How much longer the upstream is parked, as far as this process knows; not above 0: it is not."""
        return self._parked_until - self._clock()

    def flows(self) -> None:
        """Know from now on that the gate flows."""
        self._alerts.opened(self._upstream)
        self._parked_until = 0.0

    async def tell(self, end: CallEnd, permit: GatePermit) -> None:
        """Let the end of a call move its gates: once, and at once, for all processes.

        What one key lacks parks that key; the upstream only when none of its keys flows any more.
        """
        signal = self._signal(end, permit)
        if signal is None:
            await self._answered(end, permit)
            return
        key = permit.key
        store = await self._opened_store()
        await self._flush(store)
        if key is not None and signal.reason in CAPACITY | ACCOUNT:
            gate = key_gate(self._upstream, key.name)
            await store.tell(gate, signal)
            if signal.needs_person:
                self._tell_person(f"key {gate}", gate, signal)
        else:  # no fault of the key's: its own gate is left to the next
            await self._tell_of_tries(permit, is_good=False, others_than=self._upstream)
        found = await store.tell(self._upstream, signal)
        if signal.needs_person and found.by is ParkedBy.ACCOUNT:
            what = f"upstream {self._upstream}" + ("" if key is None else ", of which no key is left,")
            self._tell_person(what, self._upstream, signal)
        self._heed(found, signal)

    def _signal(self, end: CallEnd, permit: GatePermit) -> Signal | None:
        """Return what a call that failed shows of the upstream; None if it went well, or shows nothing."""
        signal = None if end.failure is None else signal_of(end.failure, self._rng, task_id=permit.task_id)
        return None if signal is None else replace(signal, seconds=permit.sent_seconds, upstream="")

    async def _answered(self, end: CallEnd, permit: GatePermit) -> None:
        """Let a call that shows nothing ill open held gates that it tried, or leave them to the next.

        The first answer opens: a body whose further calls wait for the gate would never come to its end.
        """
        is_good = end.failure is None or end.failure.status is not None
        await self._tell_of_tries(permit, is_good=is_good)
        if is_good and permit.is_first_of_probe and self._upstream not in permit.tries:
            store = await self._opened_store()
            await store.tell_of_probe(self._upstream, is_good=True, seconds=permit.seconds)
        elif is_good:
            self._has_answered = True
            if self._clock() - self._flushed_at >= ANSWERS_SECONDS:
                await self._flush(await self._opened_store())

    async def _flush(self, store: Store) -> None:
        """Tell the store, at most once in a while, that calls went well since the last time."""
        if self._has_answered:
            self._has_answered, self._flushed_at = False, self._clock()
            await store.answered(self._upstream)

    async def _tell_of_tries(self, permit: GatePermit, *, is_good: bool, others_than: str = "") -> None:
        """Tell the held gates that a call was let through to try how it went."""
        for gate in dict.fromkeys(permit.tries):
            if gate != others_than:
                store = await self._opened_store()
                await store.tell_of_probe(gate, is_good=is_good, seconds=permit.seconds)

    async def leave(self, permit: GatePermit) -> None:
        """Leave the held gates that a call was to try, and did not, to the next."""
        await self._tell_of_tries(permit, is_good=False)

    async def tell_of_ring(self, nearest: Slot) -> None:
        """Park the upstream until its first key is free, or each of its tasks would start to find that out.

        The store cannot know: keys that were taken out of the ring, or are others', have gates that flow.
        """
        reason = next((one for one in CAPACITY | ACCOUNT if one == nearest.reason), Reason.OVERLOADED)
        signal = Signal(
            reason,
            wait_seconds=None if nearest.opens_by_probe else nearest.wait_seconds,
            needs_person=nearest.wait_seconds is None,
            message="no key lets a call through",
            spread=self._rng.random(),
            no_key_flows=True,
        )
        store = await self._opened_store()
        self._heed(await store.tell(self._upstream, signal), signal)

    def _heed(self, gate: Gate, signal: Signal) -> None:
        if gate.state is GateState.PARKED:
            wait = UNNAMED_WAIT_SECONDS if signal.wait_seconds is None else signal.wait_seconds
            self._parked_until = self._clock() + min(wait, LONGEST_PARK_SECONDS)
            self.reason = str(signal.reason)

    def _tell_person(self, what: str, gate: str, signal: Signal) -> None:
        """Report, once a park, that something waits for a person."""
        if self._alerts.is_due(gate, str(signal.reason)):
            _log.error(
                "%s is parked until a person opens it (%s: %s). Mend the account or key, then: "
                "tidegate upstreams open '%s'",
                what,
                signal.reason,
                signal.message[:200],
                gate,
            )
