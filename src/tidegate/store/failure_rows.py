"""The values that the store returns about groups of failures: marks of people, and unclassified failures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MarkKind(StrEnum):
    """A person's mark on the failures with one fingerprint."""

    RESOLVED = "resolved"
    """The cause of these deaths is mended."""
    MUTED = "muted"
    """These deaths are counted, but cause no alert."""
    REVIEWED = "reviewed"
    """A person has seen that these failures have no rule."""


@dataclass(frozen=True, slots=True)
class FailureMark:
    """A person's mark on the failures with one fingerprint."""

    fingerprint: str
    kind: MarkKind
    marked_at: float
    marked_by: str
    note: str
    until_at: float | None
    """When a mute ends by itself; None: never."""
    last_death_at: float | None
    """When a task last died of this failure; None: never, or longer ago than deaths are kept."""


@dataclass(frozen=True, slots=True)
class UnknownFailureRow:
    """The failed attempts with one fingerprint that no rule classified."""

    fingerprint: str
    error_class: str
    shape: str
    frame: str
    attempts: int
    tasks: int
    succeeded: int
    """How many of these tasks succeeded later."""
    first_at: float
    last_at: float
    functions: tuple[str, ...]
    sample: str
    """The message of the last attempt."""
    sample_id: str
    """The task of that attempt."""
