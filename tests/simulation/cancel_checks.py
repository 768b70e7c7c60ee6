"""Check cancels of running tasks: if no fault affects the worker, the function stops soon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker import Violation
from simulation.claimed_runs import ClaimedRun, finishes
from simulation.run_record import RunRecord
from tidegate.domain.outcome import Fence, FinishStatus
from tidegate.store.rows import CancelStatus

_UNDER_WAY_SECONDS = 3.0
"""How long the cancel request and the end of the run may take to arrive."""
_SWALLOW_LEASES = 0.4
"""The longest time that a function runs on after it was asked to stop."""


def cancels_stop_runs(run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]) -> Iterator[Violation]:
    """I19: a run ends within the bound after a cancel request, unless a fault hit its machine."""
    bound = (
        run_record.setup.timings.cancel_poll + _SWALLOW_LEASES * run_record.setup.lease + _UNDER_WAY_SECONDS
    )
    for fence, requested_at, ended_at in cancelled_runs(run_record, claimed):
        end = requested_at + bound
        if ended_at > end and not _was_disturbed(run_record, claimed[fence], end):
            yield Violation(
                "I19",
                fence.task_id,
                f"run {fence.run} on {claimed[fence].machine} went on for more than {bound:.1f} s after its"
                f" cancel at {requested_at:.1f}",
            )


def cancelled_runs(
    run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]
) -> Iterator[tuple[Fence, float, float]]:
    """Yield each run that was in progress at a cancel request, with the times of the request and the end."""
    ended_at = {
        outcome.fence: commit.at
        for commit, outcome, answer in finishes(run_record.event_log)
        if answer is FinishStatus.DONE
    }
    for commit in run_record.event_log.commits:
        if commit.method != "cancel":
            continue
        requested = {task_id for task_id, answer in commit.answer.items() if answer is CancelStatus.REQUESTED}
        for fence, run in claimed.items():
            end = ended_at.get(fence, float("inf"))
            if fence.task_id in requested and run.at <= commit.at < end:
                yield fence, commit.at, end


def _was_disturbed(run_record: RunRecord, run: ClaimedRun, end: float) -> bool:
    """Return whether anything hindered the run's machine since the claim, or the run is over by then."""
    event_log = run_record.event_log
    return (
        end > run_record.virtual_seconds
        or run_record.deaths.get(run.machine, end) < end
        or any(fault.touches(run.machine, run.at - _UNDER_WAY_SECONDS, end) for fault in event_log.faults)
        or any(drain.machine == run.machine and drain.began_at <= end for drain in event_log.drains)
        or any(
            machine == run.machine and run.at - _UNDER_WAY_SECONDS <= at <= end
            for at, machine, _ in event_log.single_faults
        )
    )
