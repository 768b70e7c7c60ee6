"""Replace old counters by the sums of longer periods."""

from __future__ import annotations

import apsw

from tidegate.store.common.deaths import STEPS, CompactionStep, compaction_limit
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_DEATHS = load("deaths")


def precheck_compact(db: apsw.Connection, now: float) -> int | None:
    """Return 0 if no counter is old enough; None otherwise."""
    return None if any(_next_period(db, now, step) is not None for step in STEPS) else 0


def compact(db: apsw.Connection, now: float, limit: int) -> int:
    """Sum periods, the oldest first, until about `limit` rows were replaced; return how many were."""
    replaced = 0
    for step in STEPS:
        while replaced < limit and (first := _next_period(db, now, step)) is not None:
            db.execute(_DEATHS["sum_period"], (step.span, first, step.longer))
            before = db.total_changes()
            db.execute(_DEATHS["drop_period"], (step.span, first, step.longer))
            replaced += db.total_changes() - before
    return replaced


def _next_period(db: apsw.Connection, now: float, step: CompactionStep) -> int | None:
    """Return the first minute of the oldest period that may be summed; None if none is old enough."""
    minute: int | None = query.value(db, _DEATHS["next_period"], (step.span, compaction_limit(now, step)))
    return None if minute is None else minute - minute % step.longer
