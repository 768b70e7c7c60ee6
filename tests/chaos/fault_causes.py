"""Find the fault or the function that caused what the store recorded of a run."""

from __future__ import annotations

from chaos.faults import (
    LEASE_THREATS,
    MAINTENANCE_ENDS,
    POOL_DEATHS,
    SHARED,
    STOPS,
    ChaosFaultKind,
    InjectedFault,
)
from chaos.run_record import ChaosRecord
from checker import FunctionNote
from tidegate.domain.outcome import Charge, Fence
from tidegate.store.rows import HistoryRow

LATE_SECONDS = 3.0
"""How long a call may be in progress and a killed process may take to be reaped, and so how much later an
effect of a fault may be recorded. The machine's own stalls are added."""

TAKEN = frozenset({Charge.CRASH, Charge.LOSS, Charge.RELEASE, Charge.INTERRUPTED})
"""Charges of runs that were taken from their worker, independent of their function."""

_ASKED = "RetryRequested"
_NOT_THROUGH_IT, _IN_ORDER, _FIRST_OF_ONE = "not because of this task", "exit code 0", "crash 1 of 1"


def may_begin_late(run_record: ChaosRecord, worker_id: str, begin: float, end: float) -> bool:
    """Return whether a function can have started after its run was closed: its process, or the lease under
    which it started, was frozen at that time."""
    return _host_was_hit(run_record, worker_id, begin, end, {*STOPS, ChaosFaultKind.STALL})


def may_overlap(run_record: ChaosRecord, worker_id: str, begin: float, end: float) -> bool:
    """Return whether a function can have run on after the next run started: as above, or its worker ended, and
    its thread or process ended with a delay."""
    return _host_was_hit(
        run_record,
        worker_id,
        begin,
        end,
        {*STOPS, ChaosFaultKind.STALL, ChaosFaultKind.KILL_SUPERVISOR, ChaosFaultKind.DRAIN},
    )


def cause_of(run_record: ChaosRecord, entry: HistoryRow, start: FunctionNote | None) -> InjectedFault | None:
    """Return the fault by which a run was taken from its worker: the last possible one.

    Args:
        run_record: The whole run of chaos.
        entry: The run's record, closed with one of the charges `TAKEN`.
        start: The start that its function recorded; None if it never started, or was killed before that.
    """
    if entry.charge == Charge.LOSS:
        found = _lease_threats(run_record, entry)
    elif entry.charge == Charge.CRASH or _NOT_THROUGH_IT in entry.why:
        found = _crash_causes(run_record, entry, start)
    else:
        found = _release_causes(run_record, entry)
    return max(found, key=lambda fault: fault.began_at, default=None)


def failure_matches_the_function(
    run_record: ChaosRecord, fence: Fence, entry: HistoryRow, end: FunctionNote | None
) -> bool:
    """Return whether the function recorded this error, or may run longer than its time limit."""
    function = run_record.clients.functions.get(fence.task_id, "").rpartition(":")[2]
    if entry.reason == "timeout":
        return function == "overrun"
    if end is None or not end.error:
        return False
    return (end.error == _ASKED) == (entry.evidence == "ctx.retry")


def _host_was_hit(
    run_record: ChaosRecord, worker_id: str, begin: float, end: float, kinds: set[ChaosFaultKind]
) -> bool:
    host = run_record.processes.host_of(worker_id)
    return any(fault.kind in kinds for fault in run_record.fault_log.touching(host, begin, end))


def _crash_causes(
    run_record: ChaosRecord, entry: HistoryRow, start: FunctionNote | None
) -> list[InjectedFault]:
    """A crash: the pool process or the child process was killed, or froze until the supervisor killed it.

    A process that stops and cannot release its runs in time leaves them behind; then only those that must not
    run twice are dead-lettered.
    """
    if _IN_ORDER in entry.why and (_NOT_THROUGH_IT in entry.why or entry.why.startswith(_FIRST_OF_ONE)):
        return _release_causes(run_record, entry)
    pools, children = _pool_pids(run_record, entry), _child_pids(run_record, entry, start)
    if "stall limit" in entry.why:
        return [fault for fault in _hits(run_record, entry) if fault.kind in _STALLS and fault.pids & pools]
    return [
        fault
        for fault in _hits(run_record, entry)
        if (fault.kind in POOL_DEATHS and fault.pids & pools)
        or (fault.kind in _CHILD_DEATHS and fault.pids & children)
    ]


_STALLS = frozenset({ChaosFaultKind.STOP_POOL, ChaosFaultKind.STOP_BOTH})
_CHILD_DEATHS = frozenset({ChaosFaultKind.KILL_CHILD, ChaosFaultKind.KILL_WORKER})


def _lease_threats(run_record: ChaosRecord, entry: HistoryRow) -> list[InjectedFault]:
    """A loss: the supervisor was killed or frozen for long, so that heartbeats stopped.

    Outages and freezes of everything are no reason: after them every worker must have time for a heartbeat.
    A machine that stalled for half a lease may be one, and so may a drain during which the store was blocked.
    """
    own = _pool_pids(run_record, entry) | _supervisor_pids(run_record, entry)
    return [
        fault
        for fault in _hits(run_record, entry, before=2 * run_record.plan.lease)
        if (fault.kind in LEASE_THREATS and fault.pids & own)
        or (
            fault.kind is ChaosFaultKind.STALL and fault.ended_at - fault.began_at > run_record.plan.lease / 2
        )
        or (fault.kind is ChaosFaultKind.DRAIN and fault.pids & own and _could_not_write(run_record, fault))
    ]


def _release_causes(run_record: ChaosRecord, entry: HistoryRow) -> list[InjectedFault]:
    """A release: the worker was asked to stop, no child process was available, or a claim got no response."""
    felt = _hits(run_record, entry)
    if "never answered" in entry.why:
        return felt
    if "no child process" in entry.why or "had died before it began" in entry.why:
        return [fault for fault in felt if fault.kind is ChaosFaultKind.KILL_CHILD]
    supervisors = _supervisor_pids(run_record, entry)
    return [fault for fault in felt if fault.kind in MAINTENANCE_ENDS and fault.pids & supervisors]


def _could_not_write(run_record: ChaosRecord, drain: InjectedFault) -> bool:
    return any(
        fault.kind is ChaosFaultKind.BLOCKED
        for fault in run_record.fault_log.touching("", drain.began_at, drain.ended_at)
    )


def _hits(run_record: ChaosRecord, entry: HistoryRow, before: float = 0.0) -> list[InjectedFault]:
    """Return what the host of a run felt while it lasted, and shortly before its end was written."""
    end = entry.ended_at if entry.ended_at is not None else run_record.ended_at
    late = LATE_SECONDS + run_record.fault_log.stalled_seconds(end - 2 * LATE_SECONDS, end)
    begin = min(entry.at, end - before) - late
    host = run_record.processes.host_of(entry.worker_id)
    return [fault for fault in run_record.fault_log.touching(host, begin, end) if fault.kind not in SHARED]


def _pool_pids(run_record: ChaosRecord, entry: HistoryRow) -> set[int]:
    pool = run_record.processes.pools.get(entry.worker_id)
    return {pool.pid} if pool is not None else set()


def _supervisor_pids(run_record: ChaosRecord, entry: HistoryRow) -> set[int]:
    pool = run_record.processes.pools.get(entry.worker_id)
    return {pool.parent} if pool is not None else set()


def _child_pids(run_record: ChaosRecord, entry: HistoryRow, start: FunctionNote | None) -> set[int]:
    """Return the child process of its function; all of the pool process if the function left no note."""
    if start is not None:
        return {start.pid}
    return {child.pid for child in run_record.processes.children.get(entry.worker_id, ())}
