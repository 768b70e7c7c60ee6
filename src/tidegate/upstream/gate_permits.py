"""Permits that heed the upstream's gate, as far as this process knows of it.

The store charges an upstream's limits when it hands out a task, so the calls of a task need no slot of
their own here. What a call learns of the upstream's capacity or account moves the gate at once, for all
processes; in this one no further call is let out until the gate may be open again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tidegate.domain.permit import Ask, CallEnd
from tidegate.domain.upstream import Gate, GateState, Signal
from tidegate.domain.usage import SeenLimit
from tidegate.errors import UpstreamParkedError
from tidegate.policy.gate import ACCOUNT, CAPACITY
from tidegate.policy.retry import signal_of
from tidegate.policy.words import duration
from tidegate.store.protocol import Store

UNNAMED_WAIT_SECONDS = 1.0
"""How long this process holds calls back where the server named no wait; then the gate alone does."""


class GatePermits:
    """Grants the permits of one upstream.

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
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._upstream = upstream
        self._opened_store = opened_store
        self._clock = clock
        self._rng = rng or random.Random()
        self._parked_until = 0.0
        """By `clock`."""
        self._reason = ""
        self.seen: tuple[SeenLimit, ...] = ()
        """What the last answer showed of limits."""

    async def acquire(self, ask: Ask) -> GatePermit:
        """Return a permit at once.

        Raises:
            UpstreamParkedError: A call of this process was told that the upstream is short of capacity, or
                that the account is at fault, and the gate has not opened since.
        """
        left = self._parked_until - self._clock()
        if left > 0:
            raise UpstreamParkedError(
                f"upstream {self._upstream} is parked for another {duration(left)} ({self._reason})",
                fix="let it pass: the task waits, uncharged",
                upstream=self._upstream,
                reason=self._reason,
                wait_seconds=left,
            )
        return GatePermit(self)

    async def tell(self, end: CallEnd) -> None:
        """Let the end of a call move the gate. Faults of the network are left to the end of the run."""
        signal = None if end.failure is None else signal_of(end.failure, self._rng)
        if signal is None or signal.reason not in CAPACITY | ACCOUNT:
            return
        self._heed(await (await self._opened_store()).tell(self._upstream, signal), signal)

    def _heed(self, gate: Gate, signal: Signal) -> None:
        if gate.state is GateState.PARKED:
            wait = UNNAMED_WAIT_SECONDS if signal.wait_seconds is None else signal.wait_seconds
            self._parked_until = self._clock() + wait
            self._reason = str(signal.reason)


class GatePermit:
    """The right to make one call."""

    def __init__(self, permits: GatePermits) -> None:
        self._permits = permits
        self._ended = False

    @property
    def api_key(self) -> str | None:
        """None: the client's own key is used."""
        return None

    async def sending(self) -> None:
        """Nothing is recorded before a call."""

    def learn(self, seen: Sequence[SeenLimit]) -> None:
        """Keep what the headers show, for this process."""
        self._permits.seen = tuple(seen)

    async def settle(self, end: CallEnd) -> None:
        """Tell the gate how the call ended, once."""
        if not self._ended:
            self._ended = True
            await self._permits.tell(end)

    async def release(self) -> None:
        """Forget the permit: nothing was sent."""
        self._ended = True
