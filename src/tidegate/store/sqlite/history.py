"""Fold counters into the roll-up, and delete those of minutes and hours when they are old."""

from __future__ import annotations

import apsw

from tidegate.store.common.periods import (
    DAY_STEP,
    DEATH_STEPS,
    HOUR_STEP,
    TIMES_STEP,
    CompactionStep,
    compaction_limit,
)
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_DEATHS = load("deaths")
_SQL = load("compact_history")

_FOLD_ROWS = 5_000
"""How many rows of the tally one transaction folds. The transaction holds the write lock for about ten
milliseconds."""

_FOLD = (
    "fold",
    "fold_sums",
    "fold_times",
    "fold_time_sums",
    "fold_tenants",
    "fold_totals",
    "fold_events",
    "fold_total_times",
    "drop_folded",
)
_OLD = (
    (TIMES_STEP, _SQL, ("old_time_minutes",)),
    (HOUR_STEP, _SQL, ("old_minutes",)),
    (DAY_STEP, _SQL, ("old_hours", "old_time_hours")),
    (DAY_STEP, _DEATHS, ("old_hours",)),
)
"""The statements that delete rows after each step: the fold has already added them to sums of longer
periods."""


def precheck_compact(db: apsw.Connection, now: float) -> int | None:
    """Return 0 if there is no count to fold and no counter old enough to compact; None otherwise."""
    has_work = (
        query.value(db, _SQL["last_folded"], (1,)) is not None
        or any(_next_period(db, now, step) is not None for step in DEATH_STEPS)
        or _next_tenant_day(db, now) is not None
        or any(
            query.value(db, sql[f"has_{name}"], (compaction_limit(now, step),))
            for step, sql, names in _OLD
            for name in names
        )
    )
    return None if has_work else 0


def compact(db: apsw.Connection, now: float, limit: int) -> int:
    """Fold, then compact about `limit` rows, the oldest first; return how many were summed or deleted.

    If more counts wait to be folded, the result is `limit`.
    """
    if _fold(db) == _FOLD_ROWS:
        return limit
    done = 0
    for step in DEATH_STEPS:
        while done < limit and (first := _next_period(db, now, step)) is not None:
            if step.span == 0:
                db.execute(_DEATHS["sum_days"], (first,))
            db.execute(_DEATHS["sum_period"], (step.span, first, step.longer))
            done += _changed(db, _DEATHS["drop_period"], (step.span, first, step.longer))
    while done < limit and (first := _next_tenant_day(db, now)) is not None:
        db.execute(_SQL["sum_tenants"], (first, DAY_STEP.longer))
        done += _changed(db, _SQL["drop_tenants"], (first, DAY_STEP.longer))
    for step, sql, names in _OLD:
        for name in names:
            if done < limit:
                done += _changed(db, sql[name], (compaction_limit(now, step), limit - done))
    return done


def _fold(db: apsw.Connection) -> int:
    """Fold the oldest rows of the tally; return how many rows were folded."""
    last = query.value(db, _SQL["last_folded"], (_FOLD_ROWS,))
    if last is None:
        return 0
    for statement in _FOLD[:-1]:
        db.execute(_SQL[statement], (last,))
    return _changed(db, _SQL["drop_folded"], (last,))


def _changed(db: apsw.Connection, statement: str, values: tuple[object, ...]) -> int:
    """Run a statement; return how many rows it changed."""
    before = db.total_changes()
    db.execute(statement, values)
    return db.total_changes() - before


def _next_period(db: apsw.Connection, now: float, step: CompactionStep) -> int | None:
    """Return the first minute of the oldest period of deaths that may be summed; None if there is none."""
    minute: int | None = query.value(db, _DEATHS["next_period"], (step.span, compaction_limit(now, step)))
    return None if minute is None else minute - minute % step.longer


def _next_tenant_day(db: apsw.Connection, now: float) -> int | None:
    """Return the first minute of the oldest day of tenants that may be summed; None if there is none."""
    minute: int | None = query.value(db, _SQL["next_tenant_hour"], (compaction_limit(now, DAY_STEP),))
    return None if minute is None else minute - minute % DAY_STEP.longer
