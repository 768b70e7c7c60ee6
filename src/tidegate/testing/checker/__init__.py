"""The history checker: three accounts of the same tasks, held against each other.

What clients were told (`Told`), what the bodies themselves wrote down (`Witness`, `read_notes`) and what
the store says (`read_record`) must agree. `check` names every disagreement as a broken invariant. It knows
nothing of how the accounts came about, so tests, the demo and fault injection share it.
"""

from __future__ import annotations

from tidegate.testing.checker.check import INVARIANTS, check
from tidegate.testing.checker.facts import CancelTold, Limits, Note, Record, Submitted, Told, Violation
from tidegate.testing.checker.record import read_record
from tidegate.testing.checker.witness import Witness, digest_of, read_notes

__all__ = [
    "INVARIANTS",
    "CancelTold",
    "Limits",
    "Note",
    "Record",
    "Submitted",
    "Told",
    "Violation",
    "Witness",
    "check",
    "digest_of",
    "read_notes",
    "read_record",
]
