"""Check unique names: at any time, at most one task of a name is not final. Times are the store's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

from checker import Violation
from harness.record import RunRecord
from tidegate.domain.states import FINAL

_CLOCK_SECONDS = 0.25
"""Most by which the times of two transactions of different processes may be in the wrong order."""


class UnfinishedSpan(NamedTuple):
    """A span in which a task was not final."""

    begin: float
    end: float
    task_id: str


def unique_names_are_unique(record: RunRecord) -> Iterator[Violation]:
    """I3: tasks that share a unique name are not active at the same time."""
    for ids in record.unique_names.values():
        spans = sorted(span for task_id in set(ids) for span in _unfinished_spans(record, task_id))
        for before, after in pairwise(spans):
            if after.begin < before.end - (0.0 if record.is_virtual else _CLOCK_SECONDS):
                what = f"was open together with {before.task_id}, which holds the same unique name"
                yield Violation("I3", after.task_id, what)


def _unfinished_spans(record: RunRecord, task_id: str) -> Iterator[UnfinishedSpan]:
    row = record.snapshot.rows.get(task_id)
    if row is None:
        return
    begin = record.became_visible_at.get(task_id, row.enqueued_at)
    for entry in record.snapshot.histories.get(task_id, ()):
        if entry.kind == "redriven":
            begin = entry.at
        elif entry.kind == "run" and entry.ended_at is not None and entry.outcome in FINAL:
            if begin is not None:
                yield UnfinishedSpan(begin, entry.ended_at, task_id)
            begin = None
    if begin is not None:
        is_final = row.state in FINAL and row.finished_at is not None
        yield UnfinishedSpan(begin, (row.finished_at or inf) if is_final else inf, task_id)
