"""Runs as the commits of a run tell them: who was given which, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.domain.outcome import Answer, Fence, Outcome
from tidegate.store.rows import Claim
from tidegate.testing.simulation.journal import Commit, Journal


@dataclass(frozen=True, slots=True)
class Held:
    """One run of a task, by the commit that gave it out."""

    machine: str
    worker_id: str
    at: float


def held_runs(journal: Journal) -> dict[Fence, Held]:
    """Return every run that was given out, also those whose claim was never answered."""
    held: dict[Fence, Held] = {}
    for commit in journal.commits:
        if isinstance(commit.answer, Claim):
            worker_id = commit.arguments[0].worker_id
            for task in commit.answer.tasks:
                held[task.fence] = Held(commit.machine, worker_id, commit.at)
    return held


def finishes(journal: Journal) -> Iterator[tuple[Commit, Outcome, Answer]]:
    """Yield every outcome that reached the store, with its answer, heard or not."""
    for commit in journal.commits:
        if commit.method == "finish":
            for outcome, answer in zip(commit.arguments[0], commit.answer, strict=True):
                yield commit, outcome, answer
