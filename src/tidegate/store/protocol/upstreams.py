"""The part of the store contract for gates, limits, permits and retry budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.domain.failure import CallFailure
from tidegate.domain.usage import NOTHING_EXPECTED, ExpectedTokens, TokenUse
from tidegate.limits.settings import LimitDeclaration, Limits
from tidegate.limits.values import CallSlot, Gate, GateRow, ObservedLimit, PermitRecord
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow


class Upstreams(Protocol):
    """Gates, limits and retry budgets, shared by all processes.

    The claim charges limits: each claimed task has a slot of every limit of its upstream and its function.
    `finish` reports to the gates how runs ended. `promote` charges the retry budgets.
    """

    async def declare_limits(self, declared: Sequence[LimitDeclaration]) -> list[GateRow]:
        """Store the limits that an application declares; return the rows now in force, in the given order.

        The latest declaration counts, except for limits that a person set (`Limits.set_by_person`).
        """

    async def list_gates(self) -> list[GateRow]:
        """Return every stored gate: of upstreams, of limited functions, and of the system."""

    async def list_upstreams(self) -> list[UpstreamRow]:
        """Return every upstream with its counts of waiting and running tasks, by name."""

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        """Give an upstream new limits, from now on and for all processes; return whether the upstream exists.

        The limits named in `limits.set_by_person` stay when an application declares others.
        """

    async def set_function_limits(self, function: str, limits: Limits | None) -> None:
        """Give a task function a new rate limit, from now on and for all processes.

        With `limits.set_by_person`, the limit stays when an application declares a different limit. None
        removes the stored limit, so that the function is not limited until an application declares a limit.
        """

    async def park_gate(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        """Park an upstream's gate by hand; return whether the upstream exists.

        The gate stays parked for `seconds`; None: until a person opens it.
        """

    async def open_gate(self, upstream: str) -> bool:
        """Open an upstream's gate by hand; return whether the upstream exists."""

    async def request_probe(self, upstream: str) -> bool:
        """Let the next task of a parked upstream run as a probe; return whether the upstream exists."""

    async def acquire_slot(
        self,
        upstream: str,
        *,
        max_wait_seconds: float,
        permit_record: PermitRecord | None = None,
        on_last_attempt: bool = False,
        expected: ExpectedTokens = NOTHING_EXPECTED,
        settled: Sequence[TokenUse] = (),
    ) -> CallSlot:
        """Charge one call that no claim charged: a run's second call, or a call outside any task.

        If the slot is granted, the call may start after the slot's wait. If the slot is refused, nothing is
        charged. An unknown upstream has no limits. Not safe to repeat: if the result is lost, the slot is
        lost too.

        Args:
            upstream: The upstream's name, or the name of a key's gate.
            max_wait_seconds: How long the call may wait.
            permit_record: The permit to store in the same transaction if the upstream limits calls in flight.
                None if the call's run is already counted.
            on_last_attempt: Whether a failure would use up the task's last attempt. Such a call probes a gate
                only if a probe has been due for a long time.
            expected: What is known of the call's tokens.
            settled: Earlier calls of the same gate whose tokens are settled in the same transaction, also if
                the slot is refused.
        """

    async def settle_tokens(self, upstream: str, uses: Sequence[TokenUse]) -> None:
        """Settle the tokens of calls that have ended. Not safe to repeat. An unknown upstream is ignored.

        Use it for calls whose slot came from `acquire_slot`. The end of a run settles its first call.
        """

    async def release_permits(self, permit_ids: Sequence[str]) -> None:
        """Stop counting these calls as in flight. Safe to repeat; unknown ids are ignored."""

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        """Extend these permits to at least `seconds` from now. A released permit is not restored."""

    async def report_failure(self, upstream: str, call_failure: CallFailure) -> Gate:
        """Apply a call's failure to the gate of its upstream; return the gate."""

    async def report_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        """Apply the result of a probe to the gate, unless the upstream made the probe fail. Safe to repeat.

        Args:
            upstream: The upstream's name, or the name of a key's gate.
            is_good: Whether the upstream answered, so that the gate opens. Otherwise the next call may probe.
            seconds: How many seconds ago the probe began.
        """

    async def report_success(self, upstream: str) -> None:
        """Apply a successful call to its upstream's gate, which forgets its failures. Safe to repeat.

        Use it for calls that no finished run reports. Nothing is written if the gate has no failures.
        """

    async def report_limits(self, upstream: str, observed: Sequence[ObservedLimit]) -> GateRow | None:
        """Store the limits that responses of an upstream showed; return its gate, None if it has none.

        Safe to repeat, in any order: the limits from the response to the latest call are kept.
        """

    async def list_retry_budgets(self) -> list[RetryBudgetRow]:
        """Return the system's retry budget, then those of the upstreams, ordered by name."""
