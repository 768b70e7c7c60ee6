"""From stored columns to the values of the contract, where several operations read the same ones."""

from __future__ import annotations

import msgspec

from tidegate.domain.outcome import Counters
from tidegate.domain.spec import Priority

PRIORITIES = tuple(Priority)
"""By their stored number."""


def labels_of(stored: str | None) -> dict[str, str]:
    """Return a task's labels from their JSON."""
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def rules_of(stored: str | None) -> dict[str, int]:
    """Return the charged attempts by retry rule from their JSON."""
    return msgspec.json.decode(stored, type=dict[str, int]) if stored else {}


def counters_of(
    attempts: int, parks: int, crashes: int, losses: int, releases: int, rules: str | None
) -> Counters:
    """Return what a task has spent."""
    return Counters(attempts, parks, crashes, losses, releases, tuple(sorted(rules_of(rules).items())))
