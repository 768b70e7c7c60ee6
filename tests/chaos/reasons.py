"""Which fault, or which body, is behind what the store recorded of a run."""

from __future__ import annotations

from chaos.faults import LEASE_THREATS, POOL_DEATHS, SHARED, STEWARD_ENDS, STOPS, Fault, Kind
from chaos.seen import Seen
from tidegate.domain.outcome import Charge, Fence
from tidegate.store.rows import HistoryRow
from tidegate.testing.checker import Note

LATE_SECONDS = 3.0
"""A call may be under way for so long, and a killed process take so long to be reaped: what a fault brought
about can come so much later. The machine's own stalls come on top."""

TAKEN = frozenset({Charge.CRASH, Charge.LOSS, Charge.RELEASE, Charge.INTERRUPTED})
"""Charges of runs that were taken from their worker, whatever their bodies did."""

_ASKED = "RetryRequested"
_NOT_THROUGH_IT, _IN_ORDER, _FIRST_OF_ONE = "not through this task", "exit code 0", "crash 1 of 1"


def may_begin_late(seen: Seen, worker_id: str, begin: float, end: float) -> bool:
    """Return whether a body can have begun after its run was closed: its process, or the lease it started
    under, stood still meanwhile."""
    return _host_felt(seen, worker_id, begin, end, {*STOPS, Kind.STALL})


def may_go_on(seen: Seen, worker_id: str, begin: float, end: float) -> bool:
    """Return whether a body can have gone on while the next run's had begun: as above, or its worker ended,
    and its thread or its process with a delay."""
    return _host_felt(seen, worker_id, begin, end, {*STOPS, Kind.STALL, Kind.KILL_SUPERVISOR, Kind.DRAIN})


def cause(seen: Seen, entry: HistoryRow, start: Note | None) -> Fault | None:
    """Return the fault by which a run was taken from its worker: the last one that can have been it.

    Args:
        seen: The whole run of chaos.
        entry: The run's record, closed with one of the charges `TAKEN`.
        start: What its body wrote first; None: it never began, or was killed before its first line.
    """
    if entry.charge == Charge.LOSS:
        found = _threats(seen, entry)
    elif entry.charge == Charge.CRASH or _NOT_THROUGH_IT in entry.why:
        found = _deaths(seen, entry, start)
    else:
        found = _ends(seen, entry)
    return max(found, key=lambda fault: fault.began_at, default=None)


def failure_has_a_body(seen: Seen, fence: Fence, entry: HistoryRow, end: Note | None) -> bool:
    """Return whether the body says that it raised what the record holds, or may run longer than it should."""
    function = seen.clients.functions.get(fence.task_id, "").rpartition(":")[2]
    if entry.reason == "timeout":
        return function == "overrun"
    if end is None or not end.error:
        return False
    return (end.error == _ASKED) == (entry.evidence == "ctx.retry")


def _host_felt(seen: Seen, worker_id: str, begin: float, end: float, kinds: set[Kind]) -> bool:
    host = seen.processes.host_of(worker_id)
    return any(fault.kind in kinds for fault in seen.journal.touching(host, begin, end))


def _deaths(seen: Seen, entry: HistoryRow, start: Note | None) -> list[Fault]:
    """A crash: its pool process or its slot was killed, or stood still until the supervisor killed it.

    A process that ends as it was told and cannot give its runs back in time leaves them behind; only what
    must not run twice is buried then.
    """
    if _IN_ORDER in entry.why and (_NOT_THROUGH_IT in entry.why or entry.why.startswith(_FIRST_OF_ONE)):
        return _ends(seen, entry)
    pools, slots = _pool_pids(seen, entry), _slot_pids(seen, entry, start)
    if "stall limit" in entry.why:
        return [fault for fault in _felt(seen, entry) if fault.kind in _STANDSTILLS and fault.pids & pools]
    return [
        fault
        for fault in _felt(seen, entry)
        if (fault.kind in POOL_DEATHS and fault.pids & pools)
        or (fault.kind in _SLOT_DEATHS and fault.pids & slots)
    ]


_STANDSTILLS = frozenset({Kind.STOP_POOL, Kind.STOP_BOTH})
_SLOT_DEATHS = frozenset({Kind.KILL_SLOT, Kind.KILL_WORKER})


def _threats(seen: Seen, entry: HistoryRow) -> list[Fault]:
    """A loss: the supervisor was killed or stopped for long, so that nobody could beat.

    Outages and freezes are no reason: afterwards everyone must have the time to beat first. A machine that
    stood still for half a lease may be one, and a drain during which the store took no runs back.
    """
    own = _pool_pids(seen, entry) | _supervisor_pids(seen, entry)
    return [
        fault
        for fault in _felt(seen, entry, before=2 * seen.plan.lease)
        if (fault.kind in LEASE_THREATS and fault.pids & own)
        or (fault.kind is Kind.STALL and fault.ended_at - fault.began_at > seen.plan.lease / 2)
        or (fault.kind is Kind.DRAIN and fault.pids & own and _could_not_write(seen, fault))
    ]


def _ends(seen: Seen, entry: HistoryRow) -> list[Fault]:
    """A release: its worker was told to end, its slot could not be had, or a claim's answer never came."""
    felt = _felt(seen, entry)
    if "never answered" in entry.why:
        return felt
    if "no child process" in entry.why or "had died before it began" in entry.why:
        return [fault for fault in felt if fault.kind is Kind.KILL_SLOT]
    supervisors = _supervisor_pids(seen, entry)
    return [fault for fault in felt if fault.kind in STEWARD_ENDS and fault.pids & supervisors]


def _could_not_write(seen: Seen, drain: Fault) -> bool:
    return any(
        fault.kind is Kind.BLOCKED for fault in seen.journal.touching("", drain.began_at, drain.ended_at)
    )


def _felt(seen: Seen, entry: HistoryRow, before: float = 0.0) -> list[Fault]:
    """Return what the host of a run felt while it lasted, and shortly before its end was written."""
    end = entry.ended_at if entry.ended_at is not None else seen.ended_at
    late = LATE_SECONDS + seen.journal.stalled_seconds(end - 2 * LATE_SECONDS, end)
    begin = min(entry.at, end - before) - late
    host = seen.processes.host_of(entry.worker_id)
    return [fault for fault in seen.journal.touching(host, begin, end) if fault.kind not in SHARED]


def _pool_pids(seen: Seen, entry: HistoryRow) -> set[int]:
    pool = seen.processes.pools.get(entry.worker_id)
    return {pool.pid} if pool is not None else set()


def _supervisor_pids(seen: Seen, entry: HistoryRow) -> set[int]:
    pool = seen.processes.pools.get(entry.worker_id)
    return {pool.parent} if pool is not None else set()


def _slot_pids(seen: Seen, entry: HistoryRow, start: Note | None) -> set[int]:
    """Return the slot that its body was in; all of its pool process's if the body left no note."""
    if start is not None:
        return {start.pid}
    return {slot.pid for slot in seen.processes.slots.get(entry.worker_id, ())}
