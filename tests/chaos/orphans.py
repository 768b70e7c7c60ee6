"""Check how soon the runs of killed processes are decided and claimed again.

The bounds hold for maintenance and workers that no fault affects. So the clock of a bound restarts whenever a
fault hit all of them: the first one without a fault for long enough must have done it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from chaos.fault_causes import LATE_SECONDS, TAKEN, cause_of
from chaos.faults import MAINTENANCE_ENDS, SHARED, STOPS, WORKER_KILLS, ChaosFaultKind, InjectedFault
from chaos.run_record import ChaosRecord
from checker import Violation
from tidegate.domain.outcome import Charge, Fence
from tidegate.store.rows import HistoryRow

_JOB_PAUSE_SECONDS = 5.0
"""The longest time that a maintenance job waits after a failed round."""
_MAINTENANCE_FAULTS = frozenset(
    {*MAINTENANCE_ENDS, ChaosFaultKind.STOP_SUPERVISOR, ChaosFaultKind.STOP_BOTH, *SHARED}
)
_WORKER_FAULTS = frozenset({*_MAINTENANCE_FAULTS, *STOPS, ChaosFaultKind.KILL_POOL})

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Recovery:
    """One run that a fault took from its worker, and the next run of its task."""

    fence: Fence
    fault: InjectedFault
    lost_at: float
    decided_at: float | None
    due_at: float | None
    """When its next run was due; None: there is none."""
    next_at: float | None
    """When its next run was given out."""
    is_loss: bool

    @property
    def seconds(self) -> float | None:
        """Time from the fault to the next run, without the backoff after a crash."""
        if self.next_at is None or self.decided_at is None or self.due_at is None:
            return None
        return self.next_at - self.lost_at - max(0.0, self.due_at - self.decided_at)


def recoveries(run_record: ChaosRecord) -> Iterator[Recovery]:
    """Yield every run that was taken from its worker because something of it was killed or stopped."""
    starts = {Fence(note.task_id, note.run): note for note in run_record.notes if note.event == "start"}
    for fence, entry, later in _runs(run_record):
        if entry.charge not in TAKEN or entry.outcome == "cancelled":
            continue
        fault = cause_of(run_record, entry, starts.get(fence))
        if fault is None or fault.kind not in {*WORKER_KILLS, *STOPS}:
            continue
        goes_on = entry.outcome in {"retrying", "released"}
        yield Recovery(
            fence=fence,
            fault=fault,
            lost_at=max(fault.began_at, entry.at),
            decided_at=entry.ended_at,
            due_at=(entry.next_run_at or entry.ended_at) if goes_on else None,
            next_at=later.at if later is not None else None,
            is_loss=entry.charge == Charge.LOSS,
        )


def reclaimed_in_time(run_record: ChaosRecord) -> Iterator[Violation]:
    """I14: orphaned runs are decided, and their tasks claimed again, within the bounds."""
    maintainers, workers = (
        _undisturbed(run_record, _MAINTENANCE_FAULTS),
        _undisturbed(run_record, _WORKER_FAULTS),
    )
    for one in recoveries(run_record):
        if one.fault.kind is ChaosFaultKind.KILL_POOL:  # its own supervisor sees it at once
            yield from _decided_in_time(
                run_record, one, maintainers.get(one.fault.host, []), run_record.plan.crash_bound
            )
        elif one.fault.kind is ChaosFaultKind.KILL_CHILD:
            yield from _decided_in_time(
                run_record, one, workers.get(one.fault.host, []), run_record.plan.crash_bound
            )
        elif one.fault.kind not in STOPS:  # a frozen process may come back in time, so nothing is due then
            yield from _decided_in_time(run_record, one, _flatten(maintainers), run_record.plan.orphan_bound)
        yield from _claimed_in_time(run_record, one, _flatten(workers))


def _decided_in_time(
    run_record: ChaosRecord, one: Recovery, spans: Sequence[Span], seconds: float
) -> Iterator[Violation]:
    bound = _bound(run_record, spans, one.lost_at, seconds)
    if (one.decided_at or inf) > bound:
        took = "never" if one.decided_at is None else f"{one.decided_at - one.lost_at:.1f} s later"
        what = f"run {one.fence.run} was orphaned ({one.fault}) and decided {took}"
        yield Violation("I14", one.fence.task_id, f"{what}; {bound - one.lost_at:.1f} s were allowed")


def _claimed_in_time(run_record: ChaosRecord, one: Recovery, workers: Sequence[Span]) -> Iterator[Violation]:
    if one.due_at is None:
        return
    bound = _bound(run_record, workers, one.due_at, run_record.plan.claim_bound)
    row = run_record.snapshot.rows[one.fence.task_id]
    if one.next_at is None and row.finished_at is not None and row.finished_at <= bound:
        return  # cancelled while it waited
    if (one.next_at or inf) > bound:
        took = "never" if one.next_at is None else f"{one.next_at - one.due_at:.1f} s later"
        what = f"after run {one.fence.run} ({one.fault}) the next was due, and claimed {took}"
        yield Violation("I14", one.fence.task_id, f"{what}; {bound - one.due_at:.1f} s were allowed")


def _runs(run_record: ChaosRecord) -> Iterator[tuple[Fence, HistoryRow, HistoryRow | None]]:
    """Yield every run with the one after it."""
    for task_id, entries in run_record.snapshot.histories.items():
        runs = [entry for entry in entries if entry.kind == "run"]
        for place, entry in enumerate(runs):
            yield Fence(task_id, entry.run or 0), entry, runs[place + 1] if place + 1 < len(runs) else None


# --- undisturbed hosts ---------------------------------------------------------------------------------


def _bound(run_record: ChaosRecord, spans: Sequence[Span], since: float, seconds: float) -> float:
    """Return when one host had no fault for this many seconds, not counting stalls of the machine.

    Infinite if there was none: then nothing can be required.
    """
    moments = []
    for begin, end in spans:
        first = max(begin, since)
        needed = seconds + run_record.fault_log.stalled_seconds(first, end)
        if end - first >= needed:
            moments.append(first + seconds + run_record.fault_log.stalled_seconds(first, first + 2 * seconds))
    return min(moments, default=inf)


def _undisturbed(run_record: ChaosRecord, kinds: frozenset[ChaosFaultKind]) -> dict[str, list[Span]]:
    """Return, by host, the periods in which it had a ready worker that none of these faults affected."""
    hosts = sorted({pool.host for pool in run_record.processes.pools.values()})
    return {host: _undisturbed_spans(run_record, kinds, host) for host in hosts}


def _undisturbed_spans(run_record: ChaosRecord, kinds: frozenset[ChaosFaultKind], host: str) -> list[Span]:
    spans: list[Span] = []
    ready = sorted(pool.at for pool in run_record.processes.pools.values() if pool.host == host)
    faults = [
        fault
        for fault in run_record.fault_log.faults
        if fault.host in {"", host} and (fault.kind in kinds or _delays_a_reaper(run_record, fault))
    ]
    begin = ready[0]
    for fault in sorted(faults, key=lambda fault: fault.began_at):
        if begin < fault.began_at:
            spans.append((begin, fault.began_at))
        begin = max(begin, _recovered_at(fault, ready))
    if begin < run_record.ended_at:
        spans.append((begin, run_record.ended_at))
    return spans


def _delays_a_reaper(run_record: ChaosRecord, fault: InjectedFault) -> bool:
    """Return whether the store was blocked long enough for reapers to restart their patience."""
    return (
        fault.kind is ChaosFaultKind.BLOCKED
        and fault.ended_at - fault.began_at > run_record.plan.timings.reap
    )


def _flatten(spans: dict[str, list[Span]]) -> list[Span]:
    return [span for of_host in spans.values() for span in of_host]


def _recovered_at(fault: InjectedFault, ready: Sequence[float]) -> float:
    """Return when a host was well again after a fault; infinity: never."""
    if fault.kind in SHARED:
        return fault.ended_at + _JOB_PAUSE_SECONDS
    if fault.kind is ChaosFaultKind.BLOCKED:
        return fault.ended_at
    if fault.kind in {ChaosFaultKind.STOP_SUPERVISOR, ChaosFaultKind.STOP_BOTH, ChaosFaultKind.STOP_POOL}:
        # Its pool process may have lost its lease, and be replaced.
        return max(
            [fault.ended_at, *(at for at in ready if fault.began_at < at < fault.ended_at + LATE_SECONDS)]
        )
    return next((at for at in ready if at > fault.began_at), inf)
