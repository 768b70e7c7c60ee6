"""Find the next moment at which maintenance has something to do."""

from __future__ import annotations

import math

import apsw

from tidegate.policy.ticks import next_tick
from tidegate.store.schedule_rows import rule_from_json
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_SQL = load("next_due")
_ENDED = load("task_waits")["ended"]
_WAKEABLE = load("cached")["wakeable"]


def next_due_at(db: apsw.Connection) -> float:
    """Return the moment at which the first waiting task is due; infinity if none waits for a moment.

    A suspended task is due now if the tasks that it waits for have ended, or if nobody does the work whose
    result it waits for.
    """
    if query.value(db, _ENDED, (math.inf, 1)) is not None:
        return -math.inf
    if query.value(db, _WAKEABLE, (math.inf, 0.0, 1)) is not None:
        return -math.inf
    found = query.value(db, _SQL["due"])
    return math.inf if found is None else float(found)


def next_expiry_at(db: apsw.Connection, *, finished_seconds: float, dead_seconds: float) -> float:
    """Return the moment at which the first row expires; infinity if every row is kept."""
    found = query.value(db, _SQL["expiry"], (finished_seconds, dead_seconds))
    return math.inf if found is None else float(found)


def next_tick_at(db: apsw.Connection, after: float) -> float:
    """Return the moment of the first tick of any schedule after a moment; infinity if there is none."""
    found = query.value(db, _SQL["tick"], (after,))
    return math.inf if found is None else float(found)


def pass_over_ticks(db: apsw.Connection, now: float) -> None:
    """Let every schedule tick only after this moment, and leave out ticks that have passed."""
    for name, rule in query.rows(db, _SQL["overdue"], (now,)):
        db.execute(_SQL["move"], (name, next_tick(rule_from_json(rule), now)))


def has_ready(db: apsw.Connection) -> bool:
    """Return whether the main queue has any task."""
    return bool(query.value(db, _SQL["ready"]))
