"""What the ends of calls tell the gates of their upstream and its keys.

What a call learns of the upstream's capacity or account moves the gate at once, for all processes; in this
one no further call is let out until the gate may be open again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable

from tidegate.domain.failure import Reason
from tidegate.domain.permit import CallEnd
from tidegate.domain.upstream import Gate, GateState, ParkedBy, Signal, Slot, key_gate
from tidegate.policy.gate import ACCOUNT, CAPACITY, LONGEST_PARK_SECONDS
from tidegate.policy.retry import signal_of
from tidegate.store.protocol import Store
from tidegate.upstream.granted import GatePermit

_log = logging.getLogger("tidegate.upstream")

UNNAMED_WAIT_SECONDS = 0.5
"""How long this process holds calls back where the server named no wait; then the gate alone does. Less than
between two probes: none of them is for it to refuse."""


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
        self.reason = ""
        """Why it was last parked."""

    @property
    def parked_seconds(self) -> float:
        """How much longer the upstream is parked, as far as this process knows; not above 0: it is not."""
        return self._parked_until - self._clock()

    def flows(self) -> None:
        """Know from now on that the gate flows."""
        self._parked_until = 0.0

    async def tell(self, end: CallEnd, permit: GatePermit) -> None:
        """Let the end of a call move its gates. Faults of the network are left to the end of the run.

        What one key lacks parks that key; the upstream only when none of its keys flows any more.
        """
        signal = None if end.failure is None else signal_of(end.failure, self._rng)
        if signal is None or signal.reason not in CAPACITY | ACCOUNT:
            await self._tell_of_probes(end, signal, permit)
            return
        key = permit.key
        store = await self._opened_store()
        if key is not None:
            gate = key_gate(self._upstream, key.name)
            await store.tell(gate, signal)
            if signal.needs_person:
                _tell_person(f"key {gate}", gate, signal)
        found = await store.tell(self._upstream, signal)
        if key is not None and found.by is ParkedBy.ACCOUNT:
            _tell_person(f"upstream {self._upstream}, of which no key is left,", self._upstream, signal)
        self._heed(found, signal)

    async def _tell_of_probes(self, end: CallEnd, signal: Signal | None, permit: GatePermit) -> None:
        """Let a call that tried held gates open them, keep them shut, or leave them to the next.

        The first answer opens: a body whose further calls wait for the gate would never come to its end.
        """
        is_good = signal is None and (end.failure is None or end.failure.status is not None)
        gates = dict.fromkeys(permit.tries)
        if is_good and permit.is_first_of_probe:
            gates[self._upstream] = None
        for gate in gates:
            store = await self._opened_store()
            if signal is not None and gate == self._upstream and permit.fence is not None:
                continue  # the end of the run tells
            if signal is not None:
                await store.tell(gate, signal)
            else:
                await store.tell_of_probe(gate, is_good=is_good, seconds=permit.seconds)

    async def leave(self, permit: GatePermit) -> None:
        """Leave the held gates that a call was to try, and did not, to the next."""
        for gate in dict.fromkeys(permit.tries):
            store = await self._opened_store()
            await store.tell_of_probe(gate, is_good=False, seconds=permit.seconds)

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


def _tell_person(what: str, gate: str, signal: Signal) -> None:
    """Tell, as an alert, that something waits for a person."""
    _log.error(
        "%s is parked until a person opens it (%s: %s). Mend the account or key, then: "
        "tidegate upstreams open '%s'",
        what,
        signal.reason,
        signal.message[:200],
        gate,
    )
