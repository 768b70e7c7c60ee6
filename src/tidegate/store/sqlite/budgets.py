"""The retry budgets, for people to see."""

from __future__ import annotations

import apsw

from tidegate.store.gating import budget_rows
from tidegate.store.rows import BudgetRow
from tidegate.store.sqlite import gates, query
from tidegate.store.sqlite.statements import load

_HELD = load("budgets")["held"]


def budgets(db: apsw.Connection, now: float) -> list[BudgetRow]:
    """Return the retry budgets, the system's first, then those of upstreams by name."""
    return budget_rows(gates.rows(db), [(by, name, tasks) for by, name, tasks in query.rows(db, _HELD)], now)
