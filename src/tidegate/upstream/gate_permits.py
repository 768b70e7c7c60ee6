"""Permits that heed the upstream's gate, as far as this process knows of it.

The store charges an upstream's limits when it hands out a task; that pays for the run's first call. Each
further one, and each outside a task, takes a slot of its own from the store and waits for it. What a call
learns of the upstream's capacity or account moves the gate at once, for all processes; in this one no
further call is let out until the gate may be open again. What headers show of limits goes the same way.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tidegate.domain.failure import Reason
from tidegate.domain.permit import Ask, CallEnd
from tidegate.domain.upstream import Declared, Gate, GateState, ParkedBy, Signal, Slot, key_gate
from tidegate.domain.usage import SeenLimit
from tidegate.errors import ConfigError, UpstreamParkedError
from tidegate.policy.gate import ACCOUNT, CAPACITY
from tidegate.policy.retry import signal_of
from tidegate.policy.words import duration
from tidegate.store.protocol import Store
from tidegate.upstream.keys import Key, KeyRing
from tidegate.upstream.learning import Learner

_log = logging.getLogger("tidegate.upstream")

LONGEST_PATIENCE_SECONDS = 30.0
"""A call whose slot is further away is not made: its task waits outside, where it holds up nobody."""
LOOK_SECONDS = 0.25
"""Between two looks at a gate that may open any moment."""
UNNAMED_WAIT_SECONDS = 0.5
"""How long this process holds calls back where the server named no wait; then the gate alone does. Less than
between two probes: none of them is for it to refuse."""
SHORT_WAIT_SECONDS = 1.0
"""A run's first call waits in place for a spent limit that opens sooner."""


class GatePermits:
    """Grants the permits of one upstream.

    Args:
        declared: The upstream, as the application declares it.
        opened_store: Returns the store, open.
        keys: Its API keys; None: clients have their own.
        clock: Monotonic seconds.
        rng: For jitter.
    """

    def __init__(
        self,
        declared: Declared,
        opened_store: Callable[[], Awaitable[Store]],
        *,
        keys: KeyRing | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._declared = declared
        self._upstream = declared.name
        self._is_declared = False
        self._opened_store = opened_store
        self._keys = keys
        self._clock = clock
        self._rng = rng or random.Random()
        self._parked_until = 0.0
        """By `clock`."""
        self._reason = ""
        self._learner = Learner(self._declare, clock=self._clock, rng=self._rng)

    async def acquire(self, ask: Ask) -> GatePermit:
        """Return a permit, after the wait for a slot if the call needs one of its own.

        A run's first call is never kept waiting: nothing is lost if the task waits outside. Later ones are,
        for a while, since a run that begins again makes its earlier calls again too.

        Raises:
            UpstreamParkedError: The gate does not flow, or the slot is further away than the call may wait.
        """
        patience = min(ask.patience_seconds, LONGEST_PATIENCE_SECONDS)
        await self._unspent(min(patience, SHORT_WAIT_SECONDS) if ask.is_charged else patience)
        if not ask.is_charged:
            await self._slot(patience)
        elif (left := self._parked_until - self._clock()) > 0:
            raise self._parked(self._reason, left)
        return GatePermit(self, ask, None if self._keys is None else await self._key(self._keys, ask))

    async def _key(self, ring: KeyRing, ask: Ask) -> Key:
        """Return the first free key of the ring, else the next to be free, charged, after the wait for it."""
        store = await self._declare()
        patience = min(ask.patience_seconds, LONGEST_PATIENCE_SECONDS)
        refused: list[tuple[float, Key, Slot]] = []
        for key in ring.candidates(ask.function):
            soon = min(patience, LOOK_SECONDS)
            slot = await store.take_slot(key_gate(ring.upstream, key.name), patience_seconds=soon)
            if slot.is_granted:
                await asyncio.sleep(slot.wait_seconds or 0.0)
                return key
            refused.append((float("inf") if slot.wait_seconds is None else slot.wait_seconds, key, slot))
        if not refused:
            raise ConfigError(
                f"upstream {self._upstream} has no key for {ask.function or 'calls outside tasks'}",
                fix="name it in functions= of one of its keys, or give one key none",
            )
        _, key, _ = min(refused, key=lambda found: found[0])
        nearest = await store.take_slot(key_gate(ring.upstream, key.name), patience_seconds=patience)
        if nearest.is_granted:
            await asyncio.sleep(nearest.wait_seconds or 0.0)
            return key
        if len(refused) == len(ring.keys):
            await self._tell_of_ring(store, nearest)
        raise self._parked(nearest.reason, nearest.wait_seconds)

    async def _tell_of_ring(self, store: Store, nearest: Slot) -> None:
        """Park the upstream until its first key is free, or each of its tasks would start to find that out.

        The store cannot know: keys that were taken out of the ring, or are others', have gates that flow.
        """
        reason = next((one for one in CAPACITY | ACCOUNT if one == nearest.reason), Reason.OVERLOADED)
        signal = Signal(
            reason,
            wait_seconds=nearest.wait_seconds,
            needs_person=nearest.wait_seconds is None,
            message="no key lets a call through",
            spread=self._rng.random(),
            no_key_flows=True,
        )
        self._heed(await store.tell(self._upstream, signal), signal)

    async def _unspent(self, patience_seconds: float) -> None:
        """Wait for a limit that an answer just showed to be spent, which the store may not know yet."""
        left = self._learner.spent_for(self._upstream)
        if left > patience_seconds:
            raise self._parked(str(Reason.RATE_LIMIT), left)
        if left > 0:
            await asyncio.sleep(left)

    async def _slot(self, patience_seconds: float) -> None:
        """Wait for a slot of the store's."""
        store = await self._declare()
        ends_at = self._clock() + patience_seconds
        while True:
            left = ends_at - self._clock()
            slot = await store.take_slot(self._upstream, patience_seconds=left)
            if slot.is_granted:
                return await asyncio.sleep(slot.wait_seconds or 0.0)
            if slot.wait_seconds is None or slot.wait_seconds > left:
                raise self._parked(slot.reason, slot.wait_seconds)
            await asyncio.sleep(max(slot.wait_seconds, LOOK_SECONDS))

    async def _declare(self) -> Store:
        """Return the store, told of the upstream and its keys where no worker has done so yet."""
        store = await self._opened_store()
        if not self._is_declared:
            await store.declare([self._declared, *(self._keys.declared() if self._keys is not None else ())])
            self._is_declared = True
        return store

    def _parked(self, reason: str, wait_seconds: float | None) -> UpstreamParkedError:
        how_long = "until it is opened" if wait_seconds is None else f"for another {duration(wait_seconds)}"
        return UpstreamParkedError(
            f"upstream {self._upstream} lets no call through {how_long} ({reason})",
            fix="let it pass: the task waits, uncharged",
            upstream=self._upstream,
            reason=reason,
            wait_seconds=wait_seconds,
        )

    def learn(self, seen: Sequence[SeenLimit], *, ask: Ask, key: Key | None, sent_at: float | None) -> None:
        """Take note of the limits that an answer showed: of its key if it carried one of a ring."""
        gate = self._upstream if key is None else key_gate(self._upstream, key.name)
        self._learner.hear(gate, seen, sent_at=self.now() if sent_at is None else sent_at, ask=ask)

    def now(self) -> float:
        """Return the present moment by the clock that calls are placed by."""
        return self._clock()

    async def tell(self, end: CallEnd, key: Key | None) -> None:
        """Let the end of a call move its gates. Faults of the network are left to the end of the run.

        What one key lacks parks that key; the upstream only when none of its keys flows any more.
        """
        signal = None if end.failure is None else signal_of(end.failure, self._rng)
        if signal is None or signal.reason not in CAPACITY | ACCOUNT:
            return
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

    def _heed(self, gate: Gate, signal: Signal) -> None:
        if gate.state is GateState.PARKED:
            wait = UNNAMED_WAIT_SECONDS if signal.wait_seconds is None else signal.wait_seconds
            self._parked_until = self._clock() + wait
            self._reason = str(signal.reason)


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


class GatePermit:
    """The right to make one call."""

    def __init__(self, permits: GatePermits, ask: Ask, key: Key | None) -> None:
        self._permits = permits
        self._ask = ask
        self._key = key
        self._sent_at: float | None = None
        self._ended = False

    @property
    def api_key(self) -> str | None:
        """The secret of the key that was chosen; None: the client's own is used."""
        return None if self._key is None else self._key.secret()

    async def sending(self) -> None:
        """Remember when: what the answer shows of limits is placed by it."""
        self._sent_at = self._permits.now()

    def learn(self, seen: Sequence[SeenLimit]) -> None:
        """Hand on what the headers show."""
        if seen:
            self._permits.learn(seen, ask=self._ask, key=self._key, sent_at=self._sent_at)

    async def settle(self, end: CallEnd) -> None:
        """Tell the gate how the call ended, once."""
        if not self._ended:
            self._ended = True
            await self._permits.tell(end, self._key)

    async def release(self) -> None:
        """Forget the permit: nothing was sent."""
        self._ended = True
