"""Which re-runs may go back to the main queue now, and until when the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate.limits import gate as gates
from tidegate.limits.retry_budget import RetryBudget, per_minute
from tidegate.limits.settings import GateKind
from tidegate.limits.values import Gate, GateRow, GateState

GATE_CHECK_SECONDS = 60.0
"""Between looks at a gate that names no moment; what it held leaves early when it opens."""
MIN_GATE_CHECK_SECONDS = 1.0
"""Between looks at a gate that probes."""


UNCLAIMED_SECONDS = 2.0
"""A probe that has been due for so long was taken by no task in the main queue: no worker may serve those."""
PLAIN, URGENT, LAST_ATTEMPT = 0, 1, 2
"""How `DueTask.urgent` is stored."""
MAX_EARLY = 100
"""Re-runs of one upstream that may leave before their time in one round."""


class DueTask(NamedTuple):
    """A waiting task that may go, as a store found it."""

    task_id: Any
    upstream: str
    spends: int
    """1: its next run spends retry budget."""
    urgent: int
    """`URGENT` or `LAST_ATTEMPT`: it may use the reserved part."""


class HeldBack(NamedTuple):
    """A re-run that may not go now."""

    by: str
    """`gate`, `upstream` or `system`: what holds it."""
    seconds: float
    """From now until it is worth asking again."""


class Promotion:
    """One round of promotion over every gate's row: each re-run is let go and charged, or held.

    Args:
        rows: Every gate the store keeps.
        now: By the store's clock.
    """

    def __init__(self, rows: Sequence[GateRow], now: float) -> None:
        self._now = now
        self._system = RetryBudget(
            next((row for row in rows if row.kind is GateKind.SYSTEM), GateRow(GateKind.SYSTEM, "")), now
        )
        upstreams = [row for row in rows if row.kind is GateKind.UPSTREAM]
        self._gates = {row.name: gates.gate_at(row.gate, row.limits, now) for row in upstreams}
        self._probed: set[str] = set()
        """Upstreams that have been given a task to try them in this round."""
        self._budgets = {row.name: RetryBudget(row, now) for row in upstreams if per_minute(row) is not None}

    def charge_or_hold(self, upstream: str, *, urgent: bool, is_probe: bool = False) -> HeldBack | None:
        """Charge one re-run and return None, or return what holds it.

        Args:
            upstream: Of the task; empty for none.
            urgent: Whether it may use the reserved part of the budgets.
            is_probe: Whether it may go before a held gate, since that has no other task to try.
        """
        gate = self._gates.get(upstream)
        if gate is not None and gate.state is not GateState.FLOWING and not is_probe:
            return HeldBack("gate", self._parked_until(gate))
        budgets = [("system", self._system)]
        if (own := self._budgets.get(upstream)) is not None:
            budgets.insert(0, ("upstream", own))
        for by, budget in budgets:
            if budget.wait(urgent=urgent) > 0:
                return HeldBack(by, budget.postpone(urgent=urgent))
        for _, budget in budgets:
            budget.spend(urgent=urgent)
        if is_probe:
            self._probed.add(upstream)
        return None

    def may_probe(self, task: DueTask) -> bool:
        """Whether this task may leave to try its upstream, which does not flow: one of it in a round."""
        gate = self._gates.get(task.upstream)
        if gate is None or gate.state is GateState.FLOWING or task.upstream in self._probed:
            return False
        return gates.may_probe(gate, self._now, on_last_attempt=task.urgent == LAST_ATTEMPT)

    def is_probe_overdue(self, upstream: str) -> bool:
        """Whether tasks of this upstream in the main queue had their time to try it, and none did."""
        probe_at = self._gates[upstream].probe_at
        return probe_at is not None and self._now - probe_at >= UNCLAIMED_SECONDS

    def reopened(self) -> dict[str, float]:
        """Return when those upstreams opened that flow and may let re-runs go early."""
        return {
            name: gate.last_opened_at
            for name, gate in self._gates.items()
            if gate.last_opened_at is not None and not gates.admits_only_probes(gate)
        }

    def changed(self) -> list[GateRow]:
        """Return the rows to be written."""
        return [budget.row for budget in (self._system, *self._budgets.values()) if budget.is_changed]

    def _parked_until(self, gate: Gate) -> float:
        if gate.until_at is not None:
            return max(0.0, gate.until_at - self._now)
        if gate.probe_at is not None:
            return max(MIN_GATE_CHECK_SECONDS, gate.probe_at - self._now)
        return GATE_CHECK_SECONDS
