"""Constants for the upkeep of both back ends: retention times that no setting changes, and checks."""

from __future__ import annotations

from collections.abc import Mapping

BATCH_KEPT_SECONDS = 86_400.0
"""An uncommitted batch older than this has lost its client; the commit of an older batch is not resent."""

ROLLUP_KEPT_SECONDS = 400 * 86_400.0
"""Counters are kept this long (by the day after 35 days), so that a year can be compared with the year
before."""

AUDIT_KEPT_SECONDS = 365 * 86_400.0
"""People look for changes months later, not years later."""

TICK_KEPT_SECONDS = 30 * 86_400.0
"""Missed and skipped ticks, and removed schedules, are kept for people who look for them later."""

INCONSISTENCIES: Mapping[str, str] = {
    "missing_state": "tasks are in no state",
    "duplicate_state": "tasks are in two states at once",
    "orphaned_rows": "states belong to no task",
    "missing_payload": "tasks have no arguments",
    "missing_worker": "runs belong to no worker",
}
"""Descriptions by the name of the statement that counts."""


def fired_ticks_kept(finished_seconds: float) -> float:
    """Return how long ticks that fired are kept: as long as finished tasks, and an hour at least."""
    return max(finished_seconds, 3_600.0)
