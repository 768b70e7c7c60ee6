"""Find the next moment at which maintenance has something to do."""

from __future__ import annotations

import math

import apsw

from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_SQL = load("next_due")


def next_due_at(db: apsw.Connection) -> float:
    """Return the moment at which the first waiting task is due; infinity if none waits for a moment."""
    found = query.value(db, _SQL["due"])
    return math.inf if found is None else float(found)


def next_expiry_at(db: apsw.Connection, *, finished_seconds: float, dead_seconds: float) -> float:
    """Return the moment at which the first row is kept no longer; infinity if every row is kept."""
    found = query.value(db, _SQL["expiry"], (finished_seconds, dead_seconds))
    return math.inf if found is None else float(found)


def has_ready(db: apsw.Connection) -> bool:
    """Return whether the main queue has any task."""
    return bool(query.value(db, _SQL["ready"]))
