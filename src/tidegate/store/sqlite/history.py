"""Fold counters into the roll-up, and replace old ones by the sums of longer periods."""

from __future__ import annotations

import apsw

from tidegate.store.common.deaths import (
    DAY_STEP,
    HOUR_STEP,
    STEPS,
    TIMES_STEP,
    CompactionStep,
    compaction_limit,
)
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_DEATHS = load("deaths")
_SQL = load("compact_history")

_FOLD_ROWS = 5_000
"""Rows of the tally in one transaction: it holds the write lock for some ten milliseconds."""

_FOLD = ("fold", "fold_times", "fold_tenants", "fold_totals", "fold_total_times", "drop_folded")
_ROLLUP = (
    (TIMES_STEP, "next_time_minute", ("sum_times", "drop_times")),
    (HOUR_STEP, "next_minute", ("sum_period", "drop_period")),
    (
        DAY_STEP,
        "next_hour",
        ("sum_period", "drop_period", "sum_times", "drop_times", "sum_tenants", "drop_tenants"),
    ),
)
"""For each step: what finds its oldest row, and what sums a period. No tenant is counted by the minute."""


def precheck_compact(db: apsw.Connection, now: float) -> int | None:
    """Return 0 if there is nothing to fold and no counter is old enough; None otherwise."""
    has_work = (
        query.value(db, _SQL["last_folded"], (1,)) is not None
        or any(_next_period(db, now, step) is not None for step in STEPS)
        or any(_next_rollup(db, now, step, find) is not None for step, find, _ in _ROLLUP)
    )
    return None if has_work else 0


def compact(db: apsw.Connection, now: float, limit: int) -> int:
    """Fold, then sum periods, the oldest first, until about `limit` rows were replaced; return how many were.

    If there is more to fold, the answer is `limit`.
    """
    if _fold(db) == _FOLD_ROWS:
        return limit
    replaced = 0
    for step in STEPS:
        while replaced < limit and (first := _next_period(db, now, step)) is not None:
            db.execute(_DEATHS["sum_period"], (step.span, first, step.longer))
            before = db.total_changes()
            db.execute(_DEATHS["drop_period"], (step.span, first, step.longer))
            replaced += db.total_changes() - before
    for step, find, statements in _ROLLUP:
        while replaced < limit and (first := _next_rollup(db, now, step, find)) is not None:
            before = db.total_changes()
            for statement in statements:
                db.execute(_SQL[statement], (first, step.longer))
            replaced += db.total_changes() - before
    return replaced


def _fold(db: apsw.Connection) -> int:
    """Fold the oldest rows of the tally; return how many."""
    last = query.value(db, _SQL["last_folded"], (_FOLD_ROWS,))
    if last is None:
        return 0
    for statement in _FOLD[:-1]:
        db.execute(_SQL[statement], (last,))
    before = db.total_changes()
    db.execute(_SQL["drop_folded"], (last,))
    return db.total_changes() - before


def _next_period(db: apsw.Connection, now: float, step: CompactionStep) -> int | None:
    """Return the first minute of the oldest period of deaths that may be summed; None if there is none."""
    minute: int | None = query.value(db, _DEATHS["next_period"], (step.span, compaction_limit(now, step)))
    return None if minute is None else minute - minute % step.longer


def _next_rollup(db: apsw.Connection, now: float, step: CompactionStep, find: str) -> int | None:
    """Return the first minute of the oldest period of counters that may be summed; None if there is none."""
    minute: int | None = query.value(db, _SQL[find], (compaction_limit(now, step),))
    return None if minute is None else minute - minute % step.longer
