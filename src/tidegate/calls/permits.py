"""The right to make one call: how a transport asks for it, and what it tells afterwards.

A narrow seam. The transport knows HTTP and no store; what grants permits knows limits, gates and the store,
and no HTTP. The order of one call: `acquire`, `sending` just before the bytes leave, `learn` when the
headers are there, then exactly one of `settle` (the call was sent) and `release` (it never was).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.domain.calls import CallResult
from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.domain.usage import HeaderLimit


class Permit(Protocol):
    """The right to make one call. Given back by the end of its own lease if nobody does."""

    @property
    def api_key(self) -> str | None:
        """The secret to send in place of the client's own; None: leave the request as it is."""

    async def mark_sending(self) -> None:
        """Record that the bytes leave now: from here on a lost answer is a call in doubt."""

    def observe_limits(self, seen: Sequence[HeaderLimit]) -> None:
        """Take note of what the answer's headers say about limits. Returns at once, never raises."""

    def extend_lease(self, seconds: float) -> None:
        """Hold on to the permit for so long from now, at least. Returns at once, never raises."""

    async def settle(self, end: CallResult) -> None:
        """Give the permit back after a call that was sent, with what it really used and how it ended.

        A rate limit or overload among the failures parks the gate. Safe to repeat; the first one counts.
        """

    async def release(self) -> None:
        """Give the permit back unused: nothing was sent. Safe to repeat; of no effect after `settle`."""


class PermitSource(Protocol):
    """Grants permits for one upstream."""

    async def acquire(self, ask: PermitRequest) -> Permit:
        """Wait for a permit and return it. Cancelling the wait costs nothing.

        Raises:
            UpstreamParkedError: The gate is shut, or no permit is to be had within `ask.max_wait_seconds`;
                `facts` holds `upstream`, `reason` and `wait_seconds` (None: until a person opens it).
            CallTooLargeError: No bucket can ever hold this call; waiting would not help.
        """


MAX_PERMIT_SECONDS = 3600.0
"""A call without a time limit is counted as in flight for so long."""


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """One call about to be made, as far as it is known beforehand."""

    model: str = ""
    input_tokens: int = 0
    """An estimate from the prompt; 0 where there is none."""
    output_tokens: int = 0
    """The most it may write (`max_tokens`); 0 where it names no limit."""
    max_wait_seconds: float = float("inf")
    """How long it may wait for its permit."""
    fence: Fence | None = None
    """The run it belongs to; None outside a task."""
    priority: Priority = Priority.NORMAL
    tenant: str = ""
    function: str = ""
    """The task function it is made for; empty outside a task."""
    is_charged_at_claim: bool = False
    """The limits were charged for it when its task was claimed: the first call of each run."""
    is_own_upstream: bool = False
    """It is a call of its run's own upstream: of those the claim counted one at a time as in flight."""
    is_probe: bool = False
    """Its run was sent to try whether its held upstream works again."""
    on_last_attempt: bool = False
    """Its task has one attempt left, which a failed call costs and a refused one does not."""
    seconds: float = MAX_PERMIT_SECONDS
    """The longest it may last once it has its slot; of a stream, until it begins."""
