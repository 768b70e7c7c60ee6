"""Find the fault or the function that caused what the store recorded of a run."""

from __future__ import annotations

from collections.abc import Iterator

from checker import Violation
from harness.faults import Effect, Fault
from harness.record import ANY_END, RunRecord, TaskRun
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Charge

LATE_SECONDS = 3.0
"""How long a call may be in progress and a killed process may take to be reaped, and so how much later an
effect of a fault may be recorded. The machine's own stalls are added."""

_ASKED = "RetryRequested"
_NOT_THROUGH_IT, _NEVER_ANSWERED, _FIRST_OF_ONE = (
    "not because of this task",
    "never answered",
    "crash 1 of 1",
)
_ORDERLY_ENDS = (": exit code 0", ": stopped")
"""In `why` of runs that a worker left behind when it ended on request."""


def reruns_have_a_cause(record: RunRecord) -> Iterator[Violation]:
    """I12: a fault or a function explains every run that was not the last, and every death.

    A fault that hit everyone alike explains no lost run: after it, every worker must have time for a heartbeat
    first. So this fails on a mass re-run.
    """
    for run in record.runs.values():
        if run.outcome not in {"retrying", "released", "dead"}:
            continue
        if not (cause_of(record, run) if run.is_taken else _failed_by_itself(record, run)):
            how = f"{run.outcome} ({run.charge}: {run.why})"
            yield Violation(
                "I12",
                run.fence.task_id,
                f"run {run.fence.run} of {run.worker_id[:8]} on {run.host} ended {how}, and no fault explains it",
            )


def unanswered_claims_never_began(record: RunRecord) -> Iterator[Violation]:
    """I12: a run that is released because its claim got no response never started its function."""
    for run in record.runs.values():
        if run.outcome == "released" and _NEVER_ANSWERED in run.why and run.start is not None:
            what = f"run {run.fence.run} was released as never started, but its function had started"
            yield Violation("I12", run.fence.task_id, what)


def was_left_behind(run: TaskRun) -> bool:
    """Return whether its worker ended without deciding the run, so that a reaper had to."""
    return run.charge in {Charge.CRASH, Charge.LOSS} or _NOT_THROUGH_IT in run.why


def cause_of(record: RunRecord, run: TaskRun) -> Fault | None:
    """Return the fault by which a run was taken from its worker: the last possible one."""
    return max(_causes(record, run), key=lambda fault: fault.began_at, default=None)


def _causes(record: RunRecord, run: TaskRun) -> list[Fault]:
    if run.charge == Charge.LOSS:
        return _lease_threats(record, run)
    was_only_beside = _NOT_THROUGH_IT in run.why
    if run.charge == Charge.CRASH or was_only_beside:
        is_orderly = any(end in run.why for end in _ORDERLY_ENDS)
        if is_orderly and (was_only_beside or run.why.startswith(_FIRST_OF_ONE)):
            return _unfinished_stops(record, run)
        return _process_ends(record, run)
    return _release_causes(record, run)


def _lease_threats(record: RunRecord, run: TaskRun) -> list[Fault]:
    """A loss: heartbeats stopped, as the supervisor was killed, frozen for long or cut off from the store.

    A machine that stalled for half a lease may be a reason, and so may a stop of the worker during which the
    store refused its writes.
    """
    own = {run.worker.pid, run.worker.supervisor_pid}
    threats = [
        fault
        for fault in _felt(record, run, before=2 * record.bounds.lease)
        if (fault.has(Effect.THREATENS_LEASE) and fault.hit_one_of(own))
        or (fault.has(Effect.STALLS) and fault.seconds > record.bounds.lease / 2)
    ]
    stops = (fault for fault in _ends_of_maintenance(record, run) if fault.has(Effect.ASKS_TO_STOP))
    return [*threats, *(stop for stop in stops if _could_not_write(record, run, stop))]


def _process_ends(record: RunRecord, run: TaskRun) -> list[Fault]:
    """A crash: the pool process or the child process was killed, or froze until the supervisor killed it."""
    # Without a note of the function, any child process of the pool process may have been its own.
    children = run.worker.child_pids if run.start is None else {run.start.pid}
    felt = _felt(record, run)
    if "stall limit" in run.why:
        return [
            fault for fault in felt if fault.has(Effect.FREEZES_POOL) and fault.hit_one_of({run.worker.pid})
        ]
    return [
        fault
        for fault in felt
        if (fault.has(Effect.ENDS_POOL) and fault.hit_one_of({run.worker.pid}))
        or (fault.has(Effect.ENDS_CHILD) and fault.hit_one_of(children))
    ]


def _unfinished_stops(record: RunRecord, run: TaskRun) -> list[Fault]:
    """A process that stopped in order, and left runs behind as it could not release them in time."""
    return [
        fault
        for fault in _ends_of_maintenance(record, run)
        if not record.is_virtual or _could_not_write(record, run, fault)
    ]


def _release_causes(record: RunRecord, run: TaskRun) -> list[Fault]:
    """A release: the worker was asked to stop, no child process was available, or a claim got no response."""
    if _NEVER_ANSWERED in run.why:  # the response may be lost to an outage for everyone too
        begin = run.claimed_at - LATE_SECONDS
        return list(record.fault_log.touching(run.host, begin, _taken_at(record, run)))
    if "no child process" in run.why or "died before the run began" in run.why:
        return [fault for fault in _felt(record, run) if fault.kind.effects == Effect.ENDS_CHILD]
    return _ends_of_maintenance(record, run)


def _ends_of_maintenance(record: RunRecord, run: TaskRun) -> list[Fault]:
    return [
        fault
        for fault in record.fault_log.touching(
            run.host, run.claimed_at - LATE_SECONDS, _taken_at(record, run)
        )
        if fault.has(Effect.ENDS_MAINTENANCE) and fault.hit_one_of({run.worker.supervisor_pid})
    ]


def _could_not_write(record: RunRecord, run: TaskRun, stop: Fault) -> bool:
    end = min(stop.ended_at, _taken_at(record, run))
    return any(
        fault.has(Effect.HINDERS_WRITES)
        for fault in record.fault_log.touching(run.host, stop.began_at - LATE_SECONDS, end)
    )


def _felt(record: RunRecord, run: TaskRun, before: float = 0.0) -> Iterator[Fault]:
    """Yield what the host of a run felt while it lasted, and shortly before its end was written.

    Where the time is known at which its worker was retired, only what it felt at most `before` seconds earlier.
    """
    end = _taken_at(record, run)
    late = LATE_SECONDS + record.fault_log.stalled_seconds(end - 2 * LATE_SECONDS, end)
    begin = end - before if run.taken_at is not None else min(run.claimed_at, end - before)
    for fault in record.fault_log.touching(run.host, begin - late, end):
        if not fault.has(Effect.HITS_ALL_ALIKE):
            yield fault


def _taken_at(record: RunRecord, run: TaskRun) -> float:
    return next(at for at in (run.taken_at, run.ended_at, record.ended_at) if at is not None)


# --- runs that failed by themselves --------------------------------------------------------------------


def _failed_by_itself(record: RunRecord, run: TaskRun) -> bool:
    """Return whether the function recorded this error, or may run longer than its time limit."""
    end = record.scripted_ends.get(run.fence.task_id, ANY_END)
    if end is ANY_END or record.is_injected(run.why):
        return True
    if run.reason in {Reason.TIMEOUT, Reason.DEADLINE}:
        return run.reason in end.dead_reasons
    if run.end is None or not run.end.error:
        return False
    return (run.end.error == _ASKED) == (run.evidence == "ctx.retry")
