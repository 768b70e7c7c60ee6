"""The right to make one call: how a transport asks for it, and what it tells afterwards.

A narrow seam. The transport knows HTTP and no store; what grants permits knows limits, gates and the store,
and no HTTP. The order of one call: `acquire`, `sending` just before the bytes leave, `learn` when the
headers are there, then exactly one of `settle` (the call was sent) and `release` (it never was).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.domain.permit import Ask, CallEnd
from tidegate.domain.usage import SeenLimit


class Permit(Protocol):
    """The right to make one call. Given back by the end of its own lease if nobody does."""

    @property
    def api_key(self) -> str | None:
        """The secret to send in place of the client's own; None: leave the request as it is."""

    async def sending(self) -> None:
        """Record that the bytes leave now: from here on a lost answer is a call in doubt."""

    def learn(self, seen: Sequence[SeenLimit]) -> None:
        """Take note of what the answer's headers say about limits. Returns at once, never raises."""

    def keep(self, seconds: float) -> None:
        """Hold on to the permit for so long from now, at least. Returns at once, never raises."""

    async def settle(self, end: CallEnd) -> None:
        """Give the permit back after a call that was sent, with what it really used and how it ended.

        A rate limit or overload among the failures parks the gate. Safe to repeat; the first one counts.
        """

    async def release(self) -> None:
        """Give the permit back unused: nothing was sent. Safe to repeat; of no effect after `settle`."""


class Permits(Protocol):
    """Grants permits for one upstream."""

    async def acquire(self, ask: Ask) -> Permit:
        """Wait for a permit and return it. Cancelling the wait costs nothing.

        Raises:
            UpstreamParkedError: The gate is shut, or no permit is to be had within `ask.patience_seconds`;
                `facts` holds `upstream`, `reason` and `wait_seconds` (None: until a person opens it).
            CallTooLargeError: No bucket can ever hold this call; waiting would not help.
        """
