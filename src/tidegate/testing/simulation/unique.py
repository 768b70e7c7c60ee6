"""Unique names: of all tasks under one name, one at most is not final at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidegate.domain.states import FINAL
from tidegate.store.rows import TaskRow
from tidegate.testing.checker import Record, Violation
from tidegate.testing.simulation.journal import Commit


class Life(NamedTuple):
    """A span in which a task was not final."""

    begin: float
    end: float
    task_id: str


def live_names_are_unique(
    record: Record, names: Mapping[str, Sequence[str]], commits: Sequence[Commit]
) -> Iterator[Violation]:
    """I3: lives of tasks that share a unique name do not overlap. Moments are the store's."""
    visible_at = _visible_at(commits)
    for ids in names.values():
        lives = sorted(life for task_id in ids for life in _lives(record, task_id, visible_at.get(task_id)))
        for before, after in pairwise(lives):
            if after.begin < before.end:
                yield Violation(
                    "I3", after.task_id, f"lived beside {before.task_id}, which holds the same unique name"
                )


def _visible_at(commits: Sequence[Commit]) -> dict[str, float]:
    """Return when each staged task became visible: names are settled then, not when it was staged."""
    staged: dict[str, list[str]] = {}
    moments: dict[str, float] = {}
    for commit in commits:
        if commit.method == "stage":
            stage_id, tasks = commit.arguments
            staged.setdefault(stage_id, []).extend(task.id for task in tasks)
        elif commit.method == "commit_stage":
            for task_id in staged.get(commit.arguments[0], ()):
                moments.setdefault(task_id, commit.store_at)
    return moments


def _lives(record: Record, task_id: str, visible_at: float | None) -> Iterator[Life]:
    row = record.rows.get(task_id)
    if row is None:
        return
    begin: float | None = row.enqueued_at if visible_at is None else visible_at
    for entry in record.histories.get(task_id, ()):
        if entry.kind == "redriven":
            begin = entry.at
        elif (
            begin is not None
            and entry.kind == "run"
            and entry.outcome in FINAL
            and entry.ended_at is not None
        ):
            yield Life(begin, entry.ended_at, task_id)
            begin = None
    if begin is not None:
        yield Life(begin, _end(row), task_id)


def _end(row: TaskRow) -> float:
    if row.state in FINAL and row.finished_at is not None:
        return row.finished_at
    return float("inf")
