"""Check cancels of running tasks: if no fault affects the worker, the run ends soon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from checker import Violation
from harness.causes import LATE_SECONDS
from harness.record import RunRecord, TaskRun


def cancels_stop_runs(record: RunRecord) -> Iterator[Violation]:
    """I19: a run ends within the bound after a cancel request, unless a fault hit its host."""
    for run, requested_at in cancelled_runs(record):
        end = requested_at + record.bounds.cancel
        if (run.ended_at or inf) > end and not _was_disturbed(record, run, end):
            what = f"run {run.fence.run} on {run.host} went on for more than {record.bounds.cancel:.1f} s after its cancel"
            yield Violation("I19", run.fence.task_id, what)


def cancelled_runs(record: RunRecord) -> Iterator[tuple[TaskRun, float]]:
    """Yield each run that was in progress at a cancel request, with the time of the request."""
    requests: defaultdict[str, list[float]] = defaultdict(list)
    for task_id, at in record.cancel_requests:
        requests[task_id].append(at)
    for run in record.runs.values():
        for at in requests.get(run.fence.task_id, ()):
            if run.claimed_at <= at < (run.ended_at or inf) and run.fence.task_id not in record.deaf:
                yield run, at


def _was_disturbed(record: RunRecord, run: TaskRun, end: float) -> bool:
    """Return whether anything hindered the run's host since the claim, or the record ends earlier."""
    disturbing = record.fault_log.touching(run.host, run.claimed_at - LATE_SECONDS, end)
    return end > record.ended_at or any(True for _ in disturbing)
