"""The values that the store returns about what happened: deaths by reason and by fingerprint."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """Which part of the history. Every name that is set must match."""

    since: float
    """Rows that sum an hour or a day count in full if a part of it lies in the range."""
    until: float
    queue: str | None = None
    function: str | None = None
    reason: str | None = None
    """For deaths."""


@dataclass(frozen=True, slots=True)
class DeathCountRow:
    """How many tasks died in one period, by queue, function and reason."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    reason: str
    deaths: int


@dataclass(frozen=True, slots=True)
class FailureGroupRow:
    """The deaths that have one fingerprint."""

    fingerprint: str
    error_class: str
    """Empty if no exception was raised, as at a crash."""
    shape: str
    """The message with a word in angle brackets for each part that differs from task to task."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    first_at: float
    last_at: float
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    reasons: tuple[str, ...]
    example_id: str
    """The task that died last. It may be redriven or deleted by now."""
