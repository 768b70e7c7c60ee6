"""The rows of upstreams and retry budgets that people see, and how they are built from gates and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.limits import gate as gates
from tidegate.limits import retry_budget
from tidegate.limits.blocks import Block
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, is_key_gate
from tidegate.policy.backlog import GateStatus


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """One upstream: its limits, its current gate, and its tasks and calls."""

    name: str
    limits: Limits
    gate: Gate
    block: Block | None
    """Why the upstream's tasks are blocked; None if they are not."""
    in_flight: int
    """Current runs, and calls that are not counted as a run."""
    ready: int
    """Tasks in the main queue. If `block` is set, they are blocked."""
    retrying: int
    paced: int = 0
    """How many of the `ready` tasks wait for a slot of the upstream's limits."""
    waits_for: str = ""
    """What the paced tasks wait for, as text."""


@dataclass(frozen=True, slots=True)
class RetryBudgetRow:
    """One retry budget in its current window."""

    kind: GateKind
    name: str
    """Name of the upstream; empty for the system's budget."""
    amount: float
    """How many re-runs the budget allows per window."""
    window_seconds: float
    used: int
    """Re-runs started since `used_since_at`. This count uses fixed windows, but the budget applies to every
    window, wherever it begins. So `amount - used` is not the number that may start now."""
    held: int
    """How many due tasks the budget holds in the retry queue."""
    next_at: float
    """When the next re-run may start."""
    used_since_at: float = 0.0


def upstream_rows(
    rows: Sequence[GateRow],
    now: float,
    *,
    in_flight: Mapping[str, int],
    waiting: Mapping[tuple[str, str], int],
) -> list[UpstreamRow]:
    """Return every upstream with its counts of tasks and calls.

    Args:
        rows: All gates, by name.
        now: The present moment.
        in_flight: Number of current runs and calls by upstream.
        waiting: Number of tasks by upstream and state, `ready` or `retrying`.
    """
    return [
        _upstream_row(
            each,
            now,
            in_flight=in_flight.get(each.name, 0),
            ready=waiting.get((each.name, "ready"), 0),
            retrying=waiting.get((each.name, "retrying"), 0),
        )
        for each in rows
        if each.kind is GateKind.UPSTREAM
    ]


def _upstream_row(row: GateRow, now: float, *, in_flight: int, ready: int, retrying: int) -> UpstreamRow:
    status = GateStatus(row, in_flight, now)
    is_open = status.block is None
    paced = max(0, ready - status.left) if is_open and status.left is not None else 0
    return UpstreamRow(
        name=row.name,
        limits=row.limits,
        gate=gates.gate_at(row.gate, row.limits, now),
        block=status.block,
        in_flight=in_flight,
        ready=ready,
        retrying=retrying,
        paced=paced,
        waits_for="; ".join(status.reasons(ready)) if paced else "",
    )


def budget_rows(
    rows: Sequence[GateRow], held: Sequence[tuple[str, str, int]], now: float
) -> list[RetryBudgetRow]:
    """Return the system's retry budget, then those of the upstreams.

    Args:
        rows: All gates, by name.
        held: Tasks held back: by what (`gate`, `upstream`, `system`), their upstream, and how many.
        now: The present moment.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for by, upstream, tasks in held:
        sums[by, upstream if by == "upstream" else ""] += tasks
    system = next((row for row in rows if row.kind is GateKind.SYSTEM), GateRow(GateKind.SYSTEM, ""))
    upstreams = [row for row in rows if row.kind is GateKind.UPSTREAM and not is_key_gate(row.name)]
    return [
        _budget_row(row, now, sums[str(row.kind), row.name])
        for row in (system, *upstreams)
        if retry_budget.per_minute(row) is not None
    ]


def _budget_row(row: GateRow, now: float, held: int) -> RetryBudgetRow:
    rate = retry_budget.per_minute(row)
    assert rate is not None
    window = row.limits.retry_window_seconds
    return RetryBudgetRow(
        kind=row.kind,
        name=row.name,
        amount=rate * window / 60.0,
        window_seconds=window,
        used=retry_budget.used_retries(row, now),
        held=held,
        next_at=now + retry_budget.RetryBudget(row, now).wait(urgent=False),
        used_since_at=retry_budget.count_window_started_at(row, now),
    )
