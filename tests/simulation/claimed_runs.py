"""Derive the claimed runs from the commits: who claimed which run, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulation.event_log import Commit, EventLog
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.store.rows import ClaimResult


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """One run of a task, by the commit that gave it out."""

    machine: str
    worker_id: str
    at: float


def claimed_runs(event_log: EventLog) -> dict[Fence, ClaimedRun]:
    """Return every claimed run, also those whose claim got no response."""
    claimed: dict[Fence, ClaimedRun] = {}
    for commit in event_log.commits:
        if isinstance(commit.answer, ClaimResult):
            worker_id = commit.arguments[0].worker_id
            for task in commit.answer.tasks:
                claimed[task.fence] = ClaimedRun(commit.machine, worker_id, commit.at)
    return claimed


def finishes(event_log: EventLog) -> Iterator[tuple[Commit, Outcome, FinishStatus]]:
    """Yield every outcome that reached the store, with its response, received or not."""
    for commit in event_log.commits:
        if commit.method == "finish":
            for outcome, answer in zip(commit.arguments[0], commit.answer, strict=True):
                yield commit, outcome, answer
