"""The responses of the API about what happened."""

from __future__ import annotations

import msgspec


class DeathCountOut(msgspec.Struct):
    """How many tasks died in one period."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    reason: str
    deaths: int


class DeathCountsOut(msgspec.Struct):
    """Deaths by period, queue, function and reason, the oldest first."""

    deaths: list[DeathCountOut]


class FailureGroupOut(msgspec.Struct):
    """The deaths that have one fingerprint."""

    fingerprint: str
    error_class: str
    """Empty if no exception was raised."""
    shape: str
    """The message with a word in angle brackets for each part that differs from task to task."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    first_at: float
    last_at: float
    functions: list[str]
    queues: list[str]
    reasons: list[str]
    example_id: str
    """The task that died last. It may be redriven or deleted by now."""


class FailureGroupsOut(msgspec.Struct):
    """Deaths by fingerprint, the most first."""

    groups: list[FailureGroupOut]
