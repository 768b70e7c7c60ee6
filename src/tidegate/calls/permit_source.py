"""Grants permits for calls: `GatePermitSource.acquire` waits for the gate, a slot and a place in flight.

The claim of a task charges the limits of its upstream for the run's first call. Each further call, and each
call outside a task, takes a slot of its own from the store and waits for it. A run covers one call in flight
at a time. Any other call is recorded in the store, as a permit that expires by itself. `reports.py` reports
how calls ended, and `limit_reports.py` the limits that response headers show.
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
from tidegate.calls.silence import SilenceWatch
from tidegate.calls.token_settlements import ChargedTokens, TokenSettlements
from tidegate.calls.wait_queue import CallWaitQueue
from tidegate.domain.failure import Reason
from tidegate.domain.text import format_duration
from tidegate.domain.usage import HeaderLimit
from tidegate.errors import CallTooLargeError, ConfigError, UpstreamParkedError
from tidegate.events import EventBus
from tidegate.limits.formatting import format_window
from tidegate.limits.gate import gate_at
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.tokens import window_too_small
from tidegate.limits.values import CallSlot, GateRow, GateState, key_gate_name
from tidegate.store.protocol import Store

MAX_WAIT_SECONDS = 30.0
"""A call whose slot is further away than this is refused: its task waits in the queue and occupies no
worker."""
CHECK_SECONDS = 0.25
"""The time between two checks of a gate that may open at any moment."""
MAX_CHECK_SECONDS = 2.0
"""The most time between two checks of a full upstream: no message comes when calls of other processes end."""
SHORT_WAIT_SECONDS = 1.0
"""A run's first call waits for an exhausted limit that opens within this time; for a longer wait it is
refused."""


class GatePermitSource:
    """Grants the permits of one upstream.

    Args:
        declared: The upstream, as the application declares it.
        opened_store: Returns the open store.
        keys: The upstream's API keys; None if clients use their own.
        clock: Returns monotonic seconds.
        rng: The source of jitter; None for a new one.
        events: Passes events to their subscribers; None: there are no subscribers.
    """

    def __init__(
        self,
        declared: LimitDeclaration,
        opened_store: Callable[[], Awaitable[Store]],
        *,
        keys: KeyRing | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        events: EventBus | None = None,
    ) -> None:
        self._declared = declared
        self._upstream = declared.name
        self._is_declared = False
        self._opened_store = opened_store
        self._keys = keys
        self._clock = clock
        self._rng = rng or random.Random()
        self.events = events or EventBus()
        """Passes events to the subscribers."""
        self.reporter = CallReporter(
            self._upstream, opened_store, clock=self._clock, rng=self._rng, events=self.events
        )
        """Reports to the gates how calls ended."""
        self.silence = SilenceWatch(self.reporter.report_silence, clock=self._clock)
        """Notices that the upstream answers none of the calls."""
        self._limit_reporter = LimitReporter(self._declare, clock=self._clock, rng=self._rng)
        self.settlements = TokenSettlements(opened_store, clock)
        """Settles the tokens of calls that no claim charged."""
        self._queue = CallWaitQueue(clock)

    @property
    def upstream(self) -> str:
        """The name of the upstream."""
        return self._upstream

    async def acquire(self, request: PermitRequest) -> GatePermit:
        """Wait for a slot if the call needs one of its own, and return a permit.

        A run's first call waits 1 s at most: while the gate is closed, the task should wait in the queue.
        Later calls wait up to 30 s, because a run that restarts repeats its earlier calls.

        Raises:
            UpstreamParkedError: The gate does not flow, the slot is further away than the call may wait, or
                `max_in_flight` calls were running the whole time.
            CallTooLargeError: The call is larger than a whole limit of tokens.
        """
        permit = GatePermit(self, request)
        try:
            await self._admit(permit, request)
        except BaseException:
            await run_to_end(permit.release())
            raise
        return permit

    async def _admit(self, permit: GatePermit, request: PermitRequest) -> None:
        if window_too_small(self._declared.limits, request.expected_tokens) is not None:
            await self._refuse_if_too_large(request)
        max_wait_seconds = min(request.max_wait_seconds, MAX_WAIT_SECONDS)
        if request.is_charged_at_claim:
            # This comes before any wait, because a second call of the run may start to wait meanwhile.
            self._queue.take_run_place(permit.fence, permit)
            await self._wait_for_exhausted_limit(min(max_wait_seconds, SHORT_WAIT_SECONDS))
            if (left := self.reporter.parked_seconds) > 0 and await self._is_parked(request):
                raise self._parked(self.reporter.reason, left)
        else:
            await self._wait_for_exhausted_limit(max_wait_seconds)
            await self._wait_for_slot(permit, max_wait_seconds)
        if self._keys is not None:
            permit.key = await self._choose_key(self._keys, permit, request)
            permit.extend_lease(request.seconds)  # the wait for the key does not count as time of the call

    async def _refuse_if_too_large(self, request: PermitRequest) -> None:
        """Refuse a call that exceeds a declared limit on its own, unless a person has raised the limit."""
        row = await self._stored(await self._declare())
        limits = self._declared.limits if row is None else row.limits
        window = window_too_small(limits, request.expected_tokens)
        if window is not None:
            raise CallTooLargeError(
                f"the call is larger than the whole limit of upstream {self._upstream}: {window.name}, "
                f"{format_window(window)}",
                fix="make the prompt or max_tokens smaller, or raise the limit if the provider allows more",
                upstream=self._upstream,
            )

    async def _stored(self, store: Store) -> GateRow | None:
        """Return the upstream's gate; None if it has none."""
        rows = await store.list_gates()
        return next(
            (row for row in rows if (row.kind, row.name) == (GateKind.UPSTREAM, self._upstream)), None
        )

    async def _is_parked(self, request: PermitRequest) -> bool:
        """Whether a gate that this process remembers as parked is still parked.

        A person may have opened it.
        """
        if request.is_probe:
            return False
        store = await self._opened_store()
        row, now = await self._stored(store), await store.now()
        if row is not None and gate_at(row.gate, row.limits, now).state is not GateState.FLOWING:
            return True
        self.reporter.mark_flowing()
        return False

    async def _choose_key(self, ring: KeyRing, permit: GatePermit, request: PermitRequest) -> Key:
        """Return the first free key of the ring, and charge it; wait if no key is free."""
        candidates = ring.candidates(request.function)
        if not candidates:
            raise ConfigError(
                f"upstream {self._upstream} has no key for {request.function or 'calls outside tasks'}",
                fix="name the function in functions= of a key, or add a key without functions=",
            )
        await self._declare()
        max_wait_seconds = min(request.max_wait_seconds, MAX_WAIT_SECONDS)
        with self._queue.waiting(None, max_wait_seconds) as waiter:
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
        """Return a key with its slot.

        If no key is free, return the key that will be free next, with its slot.
        """
        refused: list[tuple[float, Key, CallSlot]] = []
        for key in candidates:
            soon = min(max_wait_seconds, CHECK_SECONDS)
            slot = await self._request_slot(permit, key_gate_name(ring.upstream, key.name), soon)
            if slot.is_granted:
                return key, slot
            refused.append((float("inf") if slot.wait_seconds is None else slot.wait_seconds, key, slot))
        _, key, slot = min(refused, key=lambda found: found[0])
        if slot.is_at_capacity:
            return key, slot
        return key, await self._request_slot(permit, key_gate_name(ring.upstream, key.name), max_wait_seconds)

    async def _wait_for_exhausted_limit(self, max_wait_seconds: float) -> None:
        """Wait for a limit that a response just showed as exhausted; the store may not know this yet."""
        left = self._limit_reporter.exhausted_seconds(self._upstream)
        if left > max_wait_seconds:
            raise self._parked(str(Reason.RATE_LIMIT), left)
        if left > 0:
            await asyncio.sleep(left)

    async def _wait_for_slot(self, permit: GatePermit, max_wait_seconds: float) -> None:
        """Wait for a slot from the store, and for a place in flight: the run's own or one in the store."""
        await self._declare()
        with self._queue.waiting(permit.fence, max_wait_seconds) as waiter:
            for pause in self._pauses():
                waiter.clear()
                has_place = self._queue.take_run_place(permit.fence, permit)
                left = waiter.remaining_seconds
                slot = await self._request_slot(permit, self._upstream, left, has_place=has_place)
                if slot.is_granted:
                    break
                if slot.is_at_capacity and left > 0.0:
                    await waiter.pause(min(left, pause))
                elif slot.wait_seconds is None or slot.wait_seconds > left:
                    raise self._refused(slot)
                else:
                    await asyncio.sleep(max(slot.wait_seconds, CHECK_SECONDS))
        await asyncio.sleep(slot.wait_seconds or 0.0)

    async def _request_slot(
        self, permit: GatePermit, gate: str, max_wait_seconds: float, *, has_place: bool = False
    ) -> CallSlot:
        """Request a slot from the store.

        Unless the run covers the call, also record the call as in flight.
        """
        store = await self._opened_store()
        asked_at, permit_record = self._clock(), None if has_place else permit.new_record()
        slot = await store.acquire_slot(
            gate,
            max_wait_seconds=max_wait_seconds,
            permit_record=permit_record,
            on_last_attempt=permit.on_last_attempt,
            expected=permit.expected_tokens,
            settled=self.settlements.take(gate),
        )
        if slot.charged is not None:
            permit.charged_tokens.append(ChargedTokens(gate, slot.charged, asked_at))
        if slot.is_probe:
            permit.mark_probe(gate)
        if permit_record is not None and slot.has_permit:
            permit.good_until = min(permit.good_until, asked_at + permit_record.seconds)
        elif permit_record is not None:
            permit.permit_ids.remove(permit_record.permit_id)
        return slot

    def _pauses(self) -> Iterator[float]:
        """Yield the pauses between checks of a full upstream: they grow, and each has jitter."""
        pause = CHECK_SECONDS
        while True:
            yield pause * (0.5 + 0.5 * self._rng.random())
            pause = min(2 * pause, MAX_CHECK_SECONDS)

    async def end(self, permit: GatePermit) -> None:
        """Release the call's place in flight and wake the next waiting call."""
        permit_ids, permit.permit_ids = permit.permit_ids, []
        try:
            if permit_ids:
                await (await self._opened_store()).release_permits(permit_ids)
        finally:
            self._queue.leave_run_place(permit.fence, permit)
        if permit_ids:
            self._queue.wake_first()

    async def extend(self, permit_ids: Sequence[str], seconds: float) -> None:
        """Extend the leases of these permits to at least `seconds` from now."""
        await (await self._opened_store()).extend_permits(permit_ids, seconds=seconds)

    async def _declare(self) -> Store:
        """Return the store with the upstream and its keys declared, in case no worker has done so yet."""
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
            f"upstream {self._upstream} already has max_in_flight calls in flight",
            fix="do not catch this error: the task waits without a charged attempt; or raise max_in_flight",
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
            fix="do not catch this error: the task waits without a charged attempt",
            upstream=self._upstream,
            reason=reason,
            wait_seconds=wait_seconds,
        )

    def observe_limits(
        self, seen: Sequence[HeaderLimit], *, request: PermitRequest, key: Key | None, sent_at: float | None
    ) -> None:
        """Record the limits that a response showed, for the key that the call used or for the upstream."""
        gate = self._upstream if key is None else key_gate_name(self._upstream, key.name)
        sent_at = self.now() if sent_at is None else sent_at
        self._limit_reporter.observe(gate, seen, sent_at=sent_at, request=request)

    def now(self) -> float:
        """Return the current time in monotonic seconds."""
        return self._clock()
