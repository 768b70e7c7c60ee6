"""Descriptions of inconsistencies between a store's tables. Each back end counts the rows."""

from __future__ import annotations

from collections.abc import Mapping

INCONSISTENCIES: Mapping[str, str] = {
    "missing_state": "tasks are in no state",
    "duplicate_state": "tasks are in two states at once",
    "orphaned_rows": "states belong to no task",
    "missing_payload": "tasks have no arguments",
    "missing_worker": "runs belong to no worker",
}
"""Descriptions by the name of the statement that counts."""
