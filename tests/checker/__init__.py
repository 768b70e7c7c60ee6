"""The history checker compares three records of the same tasks.

What clients saw (`ClientObservations`), what functions recorded (`FunctionRecorder`, `read_notes`) and what
the store holds (`read_snapshot`) must agree. `check` reports every difference as a broken invariant. It does
not depend on how the records were made, so simulation and fault injection share it.
"""

from __future__ import annotations

from checker.check import INVARIANTS, check
from checker.function_recorder import FunctionRecorder, digest_of, read_notes
from checker.observations import (
    ClientObservations,
    FunctionNote,
    ObservedCancel,
    RunLimits,
    StoreSnapshot,
    SubmittedTask,
    Violation,
)
from checker.snapshot import read_snapshot

__all__ = [
    "INVARIANTS",
    "ClientObservations",
    "FunctionNote",
    "FunctionRecorder",
    "ObservedCancel",
    "RunLimits",
    "StoreSnapshot",
    "SubmittedTask",
    "Violation",
    "check",
    "digest_of",
    "read_notes",
    "read_snapshot",
]
