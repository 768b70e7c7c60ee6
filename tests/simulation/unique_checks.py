"""Check unique names: at any time, at most one task of a name is not final."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from checker import StoreSnapshot, Violation
from simulation.event_log import Commit
from tidegate.domain.states import FINAL
from tidegate.store.rows import TaskRow


class UnfinishedSpan(NamedTuple):
    """A span in which a task was not final."""

    begin: float
    end: float
    task_id: str


def unique_names_are_unique(
    snapshot: StoreSnapshot, names: Mapping[str, Sequence[str]], commits: Sequence[Commit]
) -> Iterator[Violation]:
    """I3: tasks that share a unique name are not active at the same time. Times are the store's."""
    became_visible_at = _became_visible_at(commits)
    for ids in names.values():
        spans = sorted(
            span
            for task_id in ids
            for span in _unfinished_spans(snapshot, task_id, became_visible_at.get(task_id))
        )
        for before, after in pairwise(spans):
            if after.begin < before.end:
                yield Violation(
                    "I3", after.task_id, f"lived beside {before.task_id}, which holds the same unique name"
                )


def _became_visible_at(commits: Sequence[Commit]) -> dict[str, float]:
    """Return when each task of a batch became visible: its unique name counts from the commit of the batch."""
    batched: dict[str, list[str]] = {}
    moments: dict[str, float] = {}
    for commit in commits:
        if commit.method == "enqueue_part":
            batch_id, tasks = commit.arguments
            batched.setdefault(batch_id, []).extend(task.id for task in tasks)
        elif commit.method == "commit_batch":
            for task_id in batched.get(commit.arguments[0], ()):
                moments.setdefault(task_id, commit.store_at)
    return moments


def _unfinished_spans(
    snapshot: StoreSnapshot, task_id: str, became_visible_at: float | None
) -> Iterator[UnfinishedSpan]:
    row = snapshot.rows.get(task_id)
    if row is None:
        return
    begin: float | None = row.enqueued_at if became_visible_at is None else became_visible_at
    for entry in snapshot.histories.get(task_id, ()):
        if entry.kind == "redriven":
            begin = entry.at
        elif (
            begin is not None
            and entry.kind == "run"
            and entry.outcome in FINAL
            and entry.ended_at is not None
        ):
            yield UnfinishedSpan(begin, entry.ended_at, task_id)
            begin = None
    if begin is not None:
        yield UnfinishedSpan(begin, _end(row), task_id)


def _end(row: TaskRow) -> float:
    if row.state in FINAL and row.finished_at is not None:
        return row.finished_at
    return float("inf")
