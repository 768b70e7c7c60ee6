"""What can be wrong between a store's tables, in words. Each back end counts the offenders."""

from __future__ import annotations

from collections.abc import Mapping

FAULTS: Mapping[str, str] = {
    "homeless": "tasks are in no state",
    "twofold": "tasks are in two states at once",
    "strays": "states belong to no task",
    "empty_handed": "tasks have no arguments",
    "unowned": "runs belong to no worker",
}
"""By the name of the statement that counts."""
