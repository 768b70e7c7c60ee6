"""Permits that heed the upstream's gate, as far as this process knows of it.

The store charges an upstream's limits when it hands out a task; that pays for the run's first call. Each
further one, and each outside a task, takes a slot of its own from the store and waits for it. A run stands
for one call in flight at a time; any other is held in the store, as a permit that expires by itself. What its
end tells the gates is the matter of `telling`, what its answer's headers show that of `learning`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from tidegate.calls.gate_permit import GatePermit
from tidegate.calls.keys import Key, KeyRing
from tidegate.calls.limit_reports import LimitReporter
from tidegate.calls.permits import PermitRequest
from tidegate.calls.reports import CallReporter
from tidegate.calls.results import run_to_end
from tidegate.calls.wait_queue import CallWaitQueue
from tidegate.domain.durations import format_duration
from tidegate.domain.failure import Reason
from tidegate.domain.usage import HeaderLimit
from tidegate.errors import ConfigError, UpstreamParkedError
from tidegate.limits.gate import gate_at
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.values import CallSlot, GateState, key_gate_name
from tidegate.store.protocol import Store

MAX_WAIT_SECONDS = 30.0
"""A call whose slot is further away is not made: its task waits outside, where it holds up nobody."""
CHECK_SECONDS = 0.25
"""Between two looks at a gate that may open any moment."""
MAX_CHECK_SECONDS = 2.0
"""Between two looks at a full upstream, in the end: calls of other processes end unheard."""
SHORT_WAIT_SECONDS = 1.0
"""A run's first call waits in place for a spent limit that opens sooner."""


class GatePermitSource:
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
        declared: LimitDeclaration,
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
        self.reporter = CallReporter(self._upstream, opened_store, clock=self._clock, rng=self._rng)
        """How its calls move its gates."""
        self._learner = LimitReporter(self._declare, clock=self._clock, rng=self._rng)
        self._queue = CallWaitQueue(clock)

    @property
    def upstream(self) -> str:
        """The name of the upstream."""
        return self._upstream

    async def acquire(self, ask: PermitRequest) -> GatePermit:
        """Return a permit, after the wait for a slot if the call needs one of its own.

        A run's first call is never kept waiting: nothing is lost if the task waits outside. Later ones are,
        for a while, since a run that begins again makes its earlier calls again too.

        Raises:
            UpstreamParkedError: The gate does not flow, the slot is further away than the call may wait, or
                too many calls were in flight all the while.
        """
        permit = GatePermit(self, ask)
        try:
            await self._admit(permit, ask)
        except BaseException:
            await run_to_end(permit.release())
            raise
        return permit

    async def _admit(self, permit: GatePermit, ask: PermitRequest) -> None:
        patience = min(ask.max_wait_seconds, MAX_WAIT_SECONDS)
        if ask.is_charged_at_claim:
            self._queue.take_run_place(
                permit.fence, permit
            )  # at once: a second call of the run may wait as well
            await self._wait_for_exhausted_limit(min(patience, SHORT_WAIT_SECONDS))
            if (left := self.reporter.parked_seconds) > 0 and await self._is_parked(ask):
                raise self._parked(self.reporter.reason, left)
        else:
            await self._wait_for_exhausted_limit(patience)
            await self._slot(permit, patience)
        if self._keys is not None:
            permit.key = await self._key(self._keys, permit, ask)
            permit.extend_lease(ask.seconds)  # the wait for the key was none of its call's time

    async def _is_parked(self, ask: PermitRequest) -> bool:
        """Whether the gate that this process knows to be parked still is: a person may have opened it."""
        if ask.is_probe:
            return False
        store = await self._opened_store()
        rows, now = await store.list_gates(), await store.now()
        row = next((row for row in rows if (row.kind, row.name) == (GateKind.UPSTREAM, self._upstream)), None)
        if row is not None and gate_at(row.gate, row.limits, now).state is not GateState.FLOWING:
            return True
        self.reporter.mark_flowing()
        return False

    async def _key(self, ring: KeyRing, permit: GatePermit, ask: PermitRequest) -> Key:
        """Return the first free key of the ring, else the next to be free, charged, after the wait for it."""
        candidates = ring.candidates(ask.function)
        if not candidates:
            raise ConfigError(
                f"upstream {self._upstream} has no key for {ask.function or 'calls outside tasks'}",
                fix="name it in functions= of one of its keys, or give one key none",
            )
        await self._declare()
        patience = min(ask.max_wait_seconds, MAX_WAIT_SECONDS)
        with self._queue.waiting(None, patience) as waiter:
            for pause in self._pauses():
                waiter.clear()
                left = max(0.0, waiter.remaining_seconds)
                key, slot = await self._free_key(ring, candidates, permit, left)
                if slot.is_granted or not slot.is_at_capacity or left == 0.0:
                    break
                await waiter.pause(min(left, pause))
        if slot.is_granted:
            await asyncio.sleep(slot.wait_seconds or 0.0)
            return key
        if len(candidates) == len(ring.keys) and not slot.is_at_capacity:
            await self.reporter.report_ring(slot)
        raise self._refused(slot)

    async def _free_key(
        self, ring: KeyRing, candidates: Sequence[Key], permit: GatePermit, max_wait_seconds: float
    ) -> tuple[Key, CallSlot]:
        """Return the key with the slot to take, or that may be free next with what is said of it."""
        refused: list[tuple[float, Key, CallSlot]] = []
        for key in candidates:
            soon = min(max_wait_seconds, CHECK_SECONDS)
            slot = await self._take(permit, key_gate_name(ring.upstream, key.name), soon)
            if slot.is_granted:
                return key, slot
            refused.append((float("inf") if slot.wait_seconds is None else slot.wait_seconds, key, slot))
        _, key, slot = min(refused, key=lambda found: found[0])
        if slot.is_at_capacity:
            return key, slot
        return key, await self._take(permit, key_gate_name(ring.upstream, key.name), max_wait_seconds)

    async def _wait_for_exhausted_limit(self, max_wait_seconds: float) -> None:
        """Wait for a limit that an answer just showed to be spent, which the store may not know yet."""
        left = self._learner.exhausted_seconds(self._upstream)
        if left > max_wait_seconds:
            raise self._parked(str(Reason.RATE_LIMIT), left)
        if left > 0:
            await asyncio.sleep(left)

    async def _slot(self, permit: GatePermit, max_wait_seconds: float) -> None:
        """Wait for a slot of the store's, and for a place in flight: the run's, else one of the store's."""
        await self._declare()
        with self._queue.waiting(permit.fence, max_wait_seconds) as waiter:
            for pause in self._pauses():
                waiter.clear()
                has_place = self._queue.take_run_place(permit.fence, permit)
                left = waiter.remaining_seconds
                slot = await self._take(permit, self._upstream, left, has_place=has_place)
                if slot.is_granted:
                    break
                if slot.is_at_capacity and left > 0.0:
                    await waiter.pause(min(left, pause))
                elif slot.wait_seconds is None or slot.wait_seconds > left:
                    raise self._refused(slot)
                else:
                    await asyncio.sleep(max(slot.wait_seconds, CHECK_SECONDS))
        await asyncio.sleep(slot.wait_seconds or 0.0)

    async def _take(
        self, permit: GatePermit, gate: str, max_wait_seconds: float, *, has_place: bool = False
    ) -> CallSlot:
        """Ask the store for a slot, and to count the call as in flight where no run stands for it."""
        store = await self._opened_store()
        asked_at, permit_record = self._clock(), None if has_place else permit.new_record()
        slot = await store.acquire_slot(
            gate,
            max_wait_seconds=max_wait_seconds,
            permit_record=permit_record,
            on_last_attempt=permit.on_last_attempt,
        )
        if slot.is_probe:
            permit.mark_probe(gate)
        if permit_record is not None and slot.has_permit:
            permit.good_until = min(permit.good_until, asked_at + permit_record.seconds)
        elif permit_record is not None:
            permit.permit_ids.remove(permit_record.permit_id)
        return slot

    def _pauses(self) -> Iterator[float]:
        """Yield the pauses between looks at a full upstream: growing, each with jitter."""
        pause = CHECK_SECONDS
        while True:
            yield pause * (0.5 + 0.5 * self._rng.random())
            pause = min(2 * pause, MAX_CHECK_SECONDS)

    async def end(self, permit: GatePermit) -> None:
        """Let others have what a call had of what may be in flight."""
        permit_ids, permit.permit_ids = permit.permit_ids, []
        try:
            if permit_ids:
                await (await self._opened_store()).release_permits(permit_ids)
        finally:
            self._queue.leave_run_place(permit.fence, permit)
        if permit_ids:
            self._queue.wake_first()

    async def extend(self, permit_ids: Sequence[str], seconds: float) -> None:
        """Let these permits expire no earlier than so long from now."""
        await (await self._opened_store()).extend_permits(permit_ids, seconds=seconds)

    async def _declare(self) -> Store:
        """Return the store, told of the upstream and its keys where no worker has done so yet."""
        store = await self._opened_store()
        if not self._is_declared:
            await store.declare_limits(
                [self._declared, *(self._keys.declared() if self._keys is not None else ())]
            )
            self._is_declared = True
        return store

    def _refused(self, slot: CallSlot) -> UpstreamParkedError:
        if not slot.is_at_capacity:
            return self._parked(slot.reason, slot.wait_seconds, slot.message)
        return UpstreamParkedError(
            f"as many calls of upstream {self._upstream} as may be are in flight",
            fix="let it pass: the task waits, uncharged; or raise max_in_flight",
            upstream=self._upstream,
            reason=slot.reason,
            wait_seconds=slot.wait_seconds,
        )

    def _parked(self, reason: str, wait_seconds: float | None, message: str = "") -> UpstreamParkedError:
        cause = ": ".join(filter(None, (reason or "parked by a person", "" if reason else message)))
        how_long = (
            "until it is opened" if wait_seconds is None else f"for another {format_duration(wait_seconds)}"
        )
        return UpstreamParkedError(
            f"upstream {self._upstream} lets no call through {how_long} ({cause})",
            fix="let it pass: the task waits, uncharged",
            upstream=self._upstream,
            reason=reason,
            wait_seconds=wait_seconds,
        )

    def observe_limits(
        self, seen: Sequence[HeaderLimit], *, ask: PermitRequest, key: Key | None, sent_at: float | None
    ) -> None:
        """Take note of the limits that an answer showed: of its key if it carried one of a ring."""
        gate = self._upstream if key is None else key_gate_name(self._upstream, key.name)
        self._learner.observe(gate, seen, sent_at=self.now() if sent_at is None else sent_at, ask=ask)

    def now(self) -> float:
        """Return the present moment by the clock that calls are placed by."""
        return self._clock()
