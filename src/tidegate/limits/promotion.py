"""Decides which retries may go back to the main queue now, and how long the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate.limits import gate as gates
from tidegate.limits import probes
from tidegate.limits.retry_budget import RetryBudget, per_minute
from tidegate.limits.settings import GateKind
from tidegate.limits.values import Gate, GateRow, GateState

GATE_CHECK_SECONDS = 60.0
"""Seconds between two checks of retries for a gate that names no time. When the gate opens, they leave
early."""
MIN_GATE_CHECK_SECONDS = 1.0
"""The fewest seconds between two checks of retries for a gate."""
UNCLAIMED_SECONDS = 2.0
"""If a probe is overdue by this many seconds, no task in the main queue made it: perhaps no worker serves
these tasks."""
PLAIN, URGENT, LAST_ATTEMPT = 0, 1, 2
"""The stored values of `DueTask.urgent`."""
MAX_EARLY = 100
"""How many retries of one upstream may leave before their time in one round."""


class DueTask(NamedTuple):
    """A waiting task that is due, as the store read it."""

    task_id: Any
    upstream: str
    spends: int
    """1 if the task's next run spends retry budget, else 0."""
    urgent: int
    """`PLAIN`, `URGENT` or `LAST_ATTEMPT`. The last two may use the reserved part of the budget."""


class HeldBack(NamedTuple):
    """A retry that may not leave now."""

    by: str
    """What holds the retry back: `gate`, or the budget of its `upstream` or of the `system`."""
    seconds: float
    """Seconds from now until the next check."""


class Promotion:
    """One round of promotion: each due retry is charged and released, or held back.

    Args:
        rows: Every gate in the store.
        now: The current time by the store's clock.
    """

    def __init__(self, rows: Sequence[GateRow], now: float) -> None:
        self._now = now
        self._system = RetryBudget(
            next((row for row in rows if row.kind is GateKind.SYSTEM), GateRow(GateKind.SYSTEM, "")), now
        )
        upstreams = [row for row in rows if row.kind is GateKind.UPSTREAM]
        self._gates = {row.name: gates.gate_at(row.gate, row.limits, now) for row in upstreams}
        self._probed: set[str] = set()
        """Upstreams that got a probe in this round."""
        self._budgets = {row.name: RetryBudget(row, now) for row in upstreams if per_minute(row) is not None}

    def charge_or_hold(self, upstream: str, *, urgent: bool, is_probe: bool = False) -> HeldBack | None:
        """Charge one retry and return None, or return what holds it back.

        Args:
            upstream: The task's upstream; empty if there is none.
            urgent: Whether the task may use the reserved part of the budgets.
            is_probe: Whether the task may pass a closed gate as its probe.
        """
        gate = self._gates.get(upstream)
        if gate is not None and gate.state is not GateState.FLOWING and not is_probe:
            return HeldBack("gate", self._parked_until(gate))
        budgets = self._budgets_of(upstream)
        for by, budget in budgets:
            if budget.wait(urgent=urgent) > 0:
                return HeldBack(by, budget.postpone(urgent=urgent))
        for _, budget in budgets:
            budget.spend(urgent=urgent)
        if is_probe:
            self._probed.add(upstream)
        return None

    def charge_or_hold_redrive(self, upstream: str) -> HeldBack | None:
        """Charge one dead letter of a bulk redrive and return None, or return what holds it back."""
        gate = self._gates.get(upstream)
        if gate is not None and probes.admits_only_probes(gate):
            return HeldBack("gate", self._parked_until(gate))
        budgets = self._budgets_of(upstream)
        for by, budget in budgets:
            if (seconds := budget.redrive_wait()) > 0:
                return HeldBack(by, seconds)
        for _, budget in budgets:
            budget.spend_redrive()
        return None

    def may_probe(self, task: DueTask) -> bool:
        """Whether this task may leave as the probe of its closed upstream: at most one per round."""
        gate = self._gates.get(task.upstream)
        if gate is None or gate.state is GateState.FLOWING or task.upstream in self._probed:
            return False
        return probes.may_probe(gate, self._now, on_last_attempt=task.urgent == LAST_ATTEMPT)

    def is_probe_overdue(self, upstream: str) -> bool:
        """Whether the main queue's tasks of this upstream had time to probe it, but none probed it."""
        probe_at = self._gates[upstream].probe_at
        return probe_at is not None and self._now - probe_at >= UNCLAIMED_SECONDS

    def reopened(self) -> dict[str, float]:
        """Return when each flowing upstream last opened.

        The upstream's retries may leave before their time.
        """
        return {
            name: gate.last_opened_at
            for name, gate in self._gates.items()
            if gate.last_opened_at is not None and not probes.admits_only_probes(gate)
        }

    def changed(self) -> list[GateRow]:
        """Return the rows that the store must write."""
        return [budget.row for budget in (self._system, *self._budgets.values()) if budget.is_changed]

    def _budgets_of(self, upstream: str) -> list[tuple[str, RetryBudget]]:
        """Return the budgets that a retry of this upstream spends: its own, if any, and the system's."""
        own = self._budgets.get(upstream)
        return [*([] if own is None else [("upstream", own)]), ("system", self._system)]

    def _parked_until(self, gate: Gate) -> float:
        if gate.until_at is not None:
            return max(0.0, gate.until_at - self._now)
        if gate.probe_at is not None:
            return max(MIN_GATE_CHECK_SECONDS, gate.probe_at - self._now)
        return GATE_CHECK_SECONDS
