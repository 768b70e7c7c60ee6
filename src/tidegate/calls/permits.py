"""The protocols between a transport, which makes calls, and the permit source, which allows them.

The transport uses HTTP but no store. The permit source uses limits, gates and the store, but no HTTP. The
order for one call: `acquire`, `mark_sending` just before the bytes leave, `observe_limits` when the headers
have come, then either `settle` (the call was sent) or `release` (it was not sent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.domain.calls import CallResult
from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.domain.usage import ExpectedTokens, HeaderLimit
from tidegate.providers.counting import ACTUAL, Counting


class Permit(Protocol):
    """The right to make one call. A permit has a lease: if it is neither settled nor released, it expires."""

    @property
    def api_key(self) -> str | None:
        """The secret to send in place of the client's own key; None to leave the request as it is."""

    async def mark_sending(self) -> None:
        """Record that the bytes leave now. From now on, a call without a response may have been processed."""

    def observe_limits(self, seen: Sequence[HeaderLimit]) -> None:
        """Record the limits that the response's headers show. Returns at once; never raises."""

    def extend_lease(self, seconds: float) -> None:
        """Keep the permit for at least `seconds` from now. Returns at once; never raises."""

    async def settle(self, end: CallResult) -> None:
        """Settle the permit of a call that was sent, with its usage and how it ended.

        A rate limit or overload closes the gate. Safe to repeat: only the first call counts.
        """

    async def release(self) -> None:
        """Release the permit of a call that was not sent. Safe to repeat; does nothing after `settle`."""


class PermitSource(Protocol):
    """Grants permits for one upstream."""

    async def acquire(self, request: PermitRequest) -> Permit:
        """Wait for a permit and return it. Cancelling the wait costs nothing.

        Raises:
            UpstreamParkedError: The gate is closed, or no permit was free within `request.max_wait_seconds`.
            CallTooLargeError: The call is larger than the whole limit, so waiting does not help.
        """


MAX_PERMIT_SECONDS = 3600.0
"""A call without a time limit counts as in flight for at most this long."""


@dataclass(frozen=True, slots=True)
class PermitRequest:
    """What is known of a call before it is made."""

    model: str = ""
    input_tokens: int = 0
    """The estimated input tokens of the prompt; 0 if there is no estimate."""
    output_tokens: int = 0
    """The most output tokens (`max_tokens`); 0 if the call sets no limit."""
    max_wait_seconds: float = float("inf")
    """How long the call may wait for its permit."""
    fence: Fence | None = None
    """The run that makes the call; None outside a task."""
    priority: Priority = Priority.NORMAL
    tenant: str = ""
    function: str = ""
    """The task function that makes the call; empty outside a task."""
    provider: str = ""
    """The provider, as the upstream declares it."""
    operation: str = ""
    """The operation that the model is to do: `chat`, `embeddings`…; empty if the request does not show it."""
    is_charged_at_claim: bool = False
    """Whether the claim of the task already charged the limits for this call, the first of its run."""
    is_own_upstream: bool = False
    """Whether the call goes to its run's own upstream. The claim counts one such call at a time as in
    flight."""
    is_probe: bool = False
    """Whether the call's run is a probe of the closed upstream."""
    on_last_attempt: bool = False
    """Whether the task has one attempt left. A failed call would spend that attempt, a refused call would
    not."""
    counting: Counting = ACTUAL
    """How the provider counts tokens."""
    seconds: float = MAX_PERMIT_SECONDS
    """The time limit of the call once it has its slot; for a stream, until the stream begins."""

    @property
    def expected_tokens(self) -> ExpectedTokens:
        """What is known of the call's tokens."""
        reserved = self.output_tokens if self.counting.reserves_max_tokens else 0
        return ExpectedTokens(self.function, self.input_tokens, reserved, self.output_tokens)
