"""Runs taken from their workers: each for a reason that was done to its machine, and within the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker import Violation
from simulation.claimed_runs import ClaimedRun, finishes
from simulation.event_log import EventLog
from simulation.plan import FaultKind
from simulation.run_record import RunRecord
from tidegate.domain.outcome import Charge, Dead, Fence, FinishStatus, Outcome, Released, Retrying

_LATE_SECONDS = 3.0
"""How long a call may be in progress, and so how much later an effect of a fault may be committed."""
_LONGEST_PAUSE = 5.5
"""The longest time that a maintenance job waits after a failed round."""
_SHARED = frozenset({FaultKind.OUTAGE, FaultKind.LOCKED, FaultKind.CLOCK})
"""What hits everyone alike, and so explains no loss."""


def losses_have_a_cause(run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]) -> Iterator[Violation]:
    """I12: a worker loses a run only if its machine was dead, frozen or cut off, or left the run behind.

    An outage for all machines is no reason: after it, every worker must have time for a heartbeat first. So
    this check fails on a mass re-run. A worker that was asked to stop may leave runs behind only if the store
    did not let it release them.
    """
    for commit, outcome, answer in finishes(run_record.event_log):
        run = claimed.get(outcome.fence)
        if answer is not FinishStatus.DONE or run is None or not _is_taken(outcome):
            continue
        retired_at = _retired_at(run_record.event_log, run.worker_id, commit.at)
        if not (
            _was_disturbed(run_record, run, retired_at)
            or _could_not_give_back(run_record.event_log, run, retired_at)
        ):
            yield Violation(
                "I12",
                outcome.fence.task_id,
                f"run {outcome.fence.run} was taken from {run.machine}, though no fault hit it:"
                f" {getattr(outcome, 'why', '')}",
            )


def only_stops_cut_short(run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]) -> Iterator[Violation]:
    """I12: a stop dead-letters a run that may not be repeated only if its worker was asked to stop."""
    stopped = {drain.worker_id for drain in run_record.event_log.drains}
    for _, outcome, answer in finishes(run_record.event_log):
        run = claimed.get(outcome.fence)
        if answer is not FinishStatus.DONE or run is None or run.worker_id in stopped:
            continue
        if isinstance(outcome, Dead) and outcome.charge is Charge.RELEASE:
            yield Violation(
                "I12",
                outcome.fence.task_id,
                f"run {outcome.fence.run} was cut short, and {run.machine} was not told to stop",
            )


def _is_taken(outcome: Outcome) -> bool:
    """Return whether a reaper decided this for a dead worker."""
    if isinstance(outcome, Retrying | Dead):
        return outcome.charge in {Charge.LOSS, Charge.CRASH}
    return isinstance(outcome, Released) and "its process ended" in outcome.why


def _was_disturbed(run_record: RunRecord, run: ClaimedRun, retired_at: float) -> bool:
    begin = retired_at - 2 * run_record.setup.lease - _LATE_SECONDS
    disturbing = (
        fault for fault in run_record.event_log.faults if fault.kind not in _SHARED | {FaultKind.DRAIN}
    )
    return any(fault.touches(run.machine, begin, retired_at) for fault in disturbing)


def _could_not_give_back(event_log: EventLog, run: ClaimedRun, retired_at: float) -> bool:
    for drain in event_log.drains:
        if drain.worker_id == run.worker_id and drain.began_at <= retired_at:
            begin = drain.began_at - _LATE_SECONDS
            end = retired_at if drain.ended_at is None else drain.ended_at
            return any(
                fault.kind not in {FaultKind.CLOCK, FaultKind.DRAIN}
                and fault.touches(run.machine, begin, end)
                for fault in event_log.faults
            ) or any(
                machine == run.machine and begin <= at <= end for at, machine, _ in event_log.single_faults
            )
    return False


def _retired_at(event_log: EventLog, worker_id: str, by: float) -> float:
    for commit in event_log.commits:
        if commit.method == "retire_worker" and commit.arguments[0] == worker_id and commit.answer:
            return commit.at
    return by


def orphans_are_found(run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]) -> Iterator[Violation]:
    """I14: where nothing hindered some reaper, the runs of a dead machine are decided within the bound."""
    for fence, run, died_at, decided_at in due_orphans(run_record, claimed):
        if decided_at is None or decided_at > died_at + run_record.setup.orphan_bound:
            took = "never" if decided_at is None else f"after {decided_at - died_at:.1f} s"
            yield Violation(
                "I14",
                fence.task_id,
                f"run {fence.run} of {run.machine}, which died at {died_at:.1f}, was taken up {took};"
                f" {run_record.setup.orphan_bound:.1f} s are allowed",
            )


def due_orphans(
    run_record: RunRecord, claimed: Mapping[Fence, ClaimedRun]
) -> Iterator[tuple[Fence, ClaimedRun, float, float | None]]:
    """Yield each run of a dead machine that some reaper could find without a fault, with both times."""
    ended_at = {
        outcome.fence: commit.at
        for commit, outcome, answer in finishes(run_record.event_log)
        if answer is FinishStatus.DONE
    }
    unhindered: dict[str, bool] = {}
    for fence, run in claimed.items():
        died_at, decided_at = run_record.deaths.get(run.machine), ended_at.get(fence)
        if died_at is None or (decided_at is not None and decided_at < died_at):
            continue
        if run.machine not in unhindered:
            unhindered[run.machine] = _some_reaper_was_free(run_record, died_at)
        if unhindered[run.machine]:
            yield fence, run, died_at, decided_at


def _some_reaper_was_free(run_record: RunRecord, died_at: float) -> bool:
    """Return whether one machine made its passes from the crash until the bound was over."""
    reap, end = run_record.setup.timings.reap, died_at + run_record.setup.orphan_bound
    begin = died_at - max(_LONGEST_PAUSE, 3 * reap)
    if end > run_record.virtual_seconds:
        return False
    event_log = run_record.event_log
    faults = [fault for fault in event_log.faults if fault.kind is not FaultKind.DRAIN]
    for machine, entered_at in event_log.worker_started_at.items():
        lived = entered_at <= begin and run_record.deaths.get(machine, end) >= end
        drained = any(drain.machine == machine and drain.began_at <= end for drain in event_log.drains)
        if not lived or drained or any(fault.touches(machine, begin, end) for fault in faults):
            continue
        if not any(where == machine and begin <= at <= end for at, where, _ in event_log.single_faults):
            return True
    return False
