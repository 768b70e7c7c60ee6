"""What the store returns about groups of failures: what people said of them, and failures without a rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MarkKind(StrEnum):
    """What a person said of the failures with one fingerprint."""

    RESOLVED = "resolved"
    """The cause of its deaths is mended."""
    MUTED = "muted"
    """Its deaths are counted, and nobody is alerted."""
    REVIEWED = "reviewed"
    """A person has seen that it has no rule."""


@dataclass(frozen=True, slots=True)
class FailureMark:
    """What a person said of the failures with one fingerprint."""

    fingerprint: str
    kind: MarkKind
    marked_at: float
    marked_by: str
    note: str
    until_at: float | None
    """When a mute ends by itself; None: never."""
    last_death_at: float | None
    """When a task last died of it; None: never, or longer ago than deaths are kept."""


@dataclass(frozen=True, slots=True)
class UnknownFailureRow:
    """The attempts that failed with one fingerprint, for which there is no rule."""

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
    """Its task."""
