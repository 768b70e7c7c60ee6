"""The retry budgets, for people to see."""

from __future__ import annotations

from collections import Counter

import apsw

from tidegate.domain.upstream import GateKind, GateRow
from tidegate.policy import budget
from tidegate.store.rows import BudgetRow
from tidegate.store.sqlite import gates, query
from tidegate.store.sqlite.statements import load

_HELD = load("budgets")["held"]


def budgets(db: apsw.Connection, now: float) -> list[BudgetRow]:
    """Return the retry budgets, the system's first, then those of upstreams by name."""
    held: Counter[tuple[str, str]] = Counter()
    for by, upstream, tasks in query.rows(db, _HELD):
        held[by, upstream if by == "upstream" else ""] += tasks
    rows = gates.rows(db)
    system = next((row for row in rows if row.kind is GateKind.SYSTEM), GateRow(GateKind.SYSTEM, ""))
    upstreams = [row for row in rows if row.kind is GateKind.UPSTREAM]
    return [
        _row(row, now, held[str(row.kind), row.name])
        for row in (system, *upstreams)
        if budget.per_minute(row) is not None
    ]


def _row(row: GateRow, now: float, held: int) -> BudgetRow:
    rate = budget.per_minute(row)
    assert rate is not None
    window = row.limits.retry_window_seconds
    return BudgetRow(
        kind=row.kind,
        name=row.name,
        amount=rate * window / 60.0,
        window_seconds=window,
        used=budget.used(row, now),
        held=held,
        next_at=now + budget.Budget(row, now).wait(urgent=False),
    )
