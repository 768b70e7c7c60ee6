"""The right to make one call, as an upstream's `GatePermits` grants it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.context import present
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Fence
from tidegate.domain.permit import LONGEST_HOLD_SECONDS, Ask, CallEnd, Hold
from tidegate.domain.usage import SeenLimit
from tidegate.policy.charge import may_be_processed
from tidegate.upstream._endings import begin
from tidegate.upstream.keys import Key

if TYPE_CHECKING:
    from tidegate.upstream.gate_permits import GatePermits

HOLD_MARGIN_SECONDS = 10.0
"""What the store holds outlasts the call's time limit by this, so that no call outlasts it."""


class GatePermit:
    """The right to make one call."""

    def __init__(self, permits: GatePermits, ask: Ask) -> None:
        self._permits = permits
        self._ask = ask
        self._seconds = min(ask.seconds, LONGEST_HOLD_SECONDS) + HOLD_MARGIN_SECONDS
        self._sent_at: float | None = None
        self._ended = False
        run = present()
        self._calls = None if run is None else run.calls
        self.fence: Fence | None = ask.fence if ask.is_of_run else None
        """The run that may stand for it."""
        self.key: Key | None = None
        """The one that was chosen; None: the client's own is used."""
        self.holds: list[str] = []
        """What the store counts of it as in flight, or may: its answer can have been lost."""
        self.good_until = float("inf")
        """By the clock: before then none of them expires."""
        self.tries: list[str] = []
        """The held gates it was let through to try, whose probes nobody else tells of."""
        self._began_at = permits.now()

    @property
    def api_key(self) -> str | None:
        """The secret of the key that was chosen; None: the client's own is used."""
        return None if self.key is None else self.key.secret()

    def new_hold(self) -> Hold:
        """Return what to ask the store for, so that it counts the call until its time limit is over."""
        hold = Hold(uuid.uuid4().hex, self._seconds)
        self.holds.append(hold.permit_id)
        return hold

    async def sending(self) -> None:
        """Remember when: what the answer shows of limits is placed by it. The run has called from now on."""
        if self._calls is not None and self._sent_at is None:
            self._calls.begin(self._permits.upstream)
        self._sent_at = self._permits.now()

    def learn(self, seen: Sequence[SeenLimit]) -> None:
        """Hand on what the headers show."""
        if seen:
            self._permits.learn(seen, ask=self._ask, key=self.key, sent_at=self._sent_at)

    def keep(self, seconds: float) -> None:
        """Hold on to the permit for so long; the store is asked at most once in so many seconds."""
        seconds, now = min(seconds, LONGEST_HOLD_SECONDS), self._permits.now()
        if self.holds and now + seconds + HOLD_MARGIN_SECONDS / 2 > self.good_until:
            lease_seconds = 2 * seconds + HOLD_MARGIN_SECONDS
            self.good_until = now + lease_seconds
            begin(self._permits.extend(tuple(self.holds), lease_seconds))

    @property
    def task_id(self) -> str:
        """The task it is made for; empty outside tasks."""
        return "" if self._ask.fence is None else self._ask.fence.task_id

    @property
    def on_last_attempt(self) -> bool:
        """Whether its task has one attempt left."""
        return self._ask.on_last_attempt

    @property
    def is_first_of_probe(self) -> bool:
        """Whether its run tries the upstream, and this call is the first to tell."""
        return self._ask.is_probe and self._ask.is_charged

    def will_try(self, gate: str) -> None:
        """Note that it was let through a held gate, just now, to try it."""
        self.tries.append(gate)
        self._began_at = self._permits.now()

    @property
    def seconds(self) -> float:
        """How long ago it was asked for, or let through a held gate."""
        return self._permits.now() - self._began_at

    @property
    def sent_seconds(self) -> float | None:
        """How long ago it was sent; None: it was not."""
        return None if self._sent_at is None else self._permits.now() - self._sent_at

    async def settle(self, end: CallEnd) -> None:
        """Tell the gates how the call ended, once; only then may another take its place."""
        if self._ended:
            return
        self._ended = True
        self._note_end(end)
        try:
            await self._permits.telling.tell(end, self)
        finally:
            await self._permits.end(self)

    async def release(self) -> None:
        """Give the permit back: nothing was sent."""
        if self._ended:
            return
        self._ended = True
        if self._calls is not None and self._sent_at is not None:
            self._calls.take_back(self._permits.upstream)
        try:
            await self._permits.telling.leave(self)
        finally:
            await self._permits.end(self)

    def _note_end(self, end: CallEnd) -> None:
        """Note how the call ended for the end of its run, which may come before the store has answered."""
        if self._calls is None or self._sent_at is None:
            return
        self._calls.end(
            self._permits.upstream,
            end.failure,
            may_be_processed=may_be_processed(end),
            is_cut=is_cut(end),
            usage=end.usage,
        )


def is_cut(end: CallEnd) -> bool:
    """Whether a call was ended by us, in the middle: it shows nothing of the upstream."""
    failure = end.failure
    return failure is not None and failure.reason is Reason.CANCELLED and failure.status is None
