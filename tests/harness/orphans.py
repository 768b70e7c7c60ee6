"""Check how soon the runs of dead workers are decided and claimed again.

The bounds hold for maintenance and workers that no fault affects. So the clock of a bound restarts whenever a
fault hit all of them: the first one without a fault for long enough must have done it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf

from checker import Violation
from harness.causes import LATE_SECONDS, cause_of, was_left_behind
from harness.faults import Effect, Fault
from harness.record import RunRecord, TaskRun
from tidegate.domain.outcome import Charge

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Recovery:
    """One run that a fault took from its worker, and the next run of its task."""

    run: TaskRun
    fault: Fault
    lost_at: float
    decide_by: float
    """When its end must be decided; infinity: not required, as every host had faults or its worker may come
    back."""
    due_at: float | None
    """When its next run was due; None: there is none."""
    claim_by: float
    """When its next run must be claimed; infinity: not required."""
    next_at: float | None
    """When its next run was claimed."""

    @property
    def is_loss(self) -> bool:
        """Whether its lease ran out, rather than that its process was seen dead."""
        return self.run.charge == Charge.LOSS

    @property
    def seconds(self) -> float | None:
        """Time from the fault to the next run, without the backoff after a crash."""
        if self.next_at is None or self.run.ended_at is None or self.due_at is None:
            return None
        return self.next_at - self.lost_at - max(0.0, self.due_at - self.run.ended_at)


def orphans_are_reclaimed(record: RunRecord, found: Sequence[Recovery]) -> Iterator[Violation]:
    """I14: orphaned runs are decided, and their tasks claimed again, within the bounds."""
    for one in found:
        fence = one.run.fence
        if (one.run.ended_at or inf) > one.decide_by:
            what = f"run {fence.run} was orphaned ({one.fault}) and decided {_after(one.lost_at, one.run.ended_at)}"
            yield Violation("I14", fence.task_id, f"{what}; {one.decide_by - one.lost_at:.1f} s were allowed")
        if one.due_at is None or (one.next_at or inf) <= one.claim_by:
            continue
        row = record.snapshot.rows.get(fence.task_id)
        is_cancelled = row is None or (row.finished_at is not None and row.finished_at <= one.claim_by)
        if one.next_at is None and is_cancelled:  # while it waited
            continue
        what = f"after run {fence.run} ({one.fault}) the next was due, and claimed {_after(one.due_at, one.next_at)}"
        yield Violation("I14", fence.task_id, f"{what}; {one.claim_by - one.due_at:.1f} s were allowed")


def recoveries(record: RunRecord) -> Iterator[Recovery]:
    """Yield every run that was taken from its worker, as something of it was ended or frozen."""
    maintainers = _undisturbed(record, Effect.HINDERS_MAINTENANCE)
    workers = _undisturbed(record, Effect.HINDERS_CLAIMS)
    for run, later in _pairs(record):
        if run.outcome == "cancelled" or not (run.is_taken or run.ended_at is None):
            continue
        fault = cause_of(record, run) if run.is_taken else _end_of_worker(record, run)
        if fault is None or not fault.has(Effect.ENDS_WORKER | Effect.ASKS_TO_STOP | Effect.FREEZES):
            continue
        if fault.has(Effect.ASKS_TO_STOP) and run.is_taken and not was_left_behind(run):
            continue  # its worker released it
        lost_at = max(fault.ended_at if fault.has(Effect.ASKS_TO_STOP) else fault.began_at, run.claimed_at)
        due_at = None
        if run.outcome in {"retrying", "released"} and run.ended_at is not None:
            due_at = run.next_run_at or run.ended_at
        yield Recovery(
            run=run,
            fault=fault,
            lost_at=lost_at,
            decide_by=_decide_by(record, fault, lost_at, maintainers, workers),
            due_at=due_at,
            claim_by=inf
            if due_at is None
            else _bound(record, _flatten(workers), due_at, record.bounds.claim),
            next_at=later.claimed_at if later is not None else None,
        )


def _after(begin: float, end: float | None) -> str:
    return "never" if end is None else f"{end - begin:.1f} s later"


def _end_of_worker(record: RunRecord, run: TaskRun) -> Fault | None:
    """Return the fault that ended the worker of a run that was never decided."""
    own = {run.worker.pid, run.worker.supervisor_pid}
    return next(
        (
            fault
            for fault in record.felt_by(run, record.ended_at)
            if fault.has(Effect.ENDS_WORKER | Effect.ASKS_TO_STOP) and fault.hit_one_of(own)
        ),
        None,
    )


def _pairs(record: RunRecord) -> Iterator[tuple[TaskRun, TaskRun | None]]:
    """Yield every run with the one after it."""
    ordered = sorted(record.runs.values(), key=lambda run: run.fence)
    for _, group in groupby(ordered, key=lambda run: run.fence.task_id):
        runs = list(group)
        yield from zip(runs, [*runs[1:], None], strict=True)


def _decide_by(
    record: RunRecord,
    fault: Fault,
    lost_at: float,
    maintainers: Mapping[str, Sequence[Span]],
    workers: Mapping[str, Sequence[Span]],
) -> float:
    if fault.has(Effect.FREEZES):  # it may come back in time, so nothing is due then
        return inf
    if fault.has(Effect.ENDS_MAINTENANCE):
        return _bound(record, _flatten(maintainers), lost_at, record.bounds.orphan)
    # Its own supervisor sees the end of a pool process at once, its pool process that of a child.
    spans = maintainers if fault.has(Effect.ENDS_POOL) else workers
    return _bound(record, spans.get(fault.host, ()), lost_at, record.bounds.crash)


# --- undisturbed hosts ---------------------------------------------------------------------------------


def _bound(record: RunRecord, spans: Sequence[Span], since: float, seconds: float) -> float:
    """Return when one host had no fault for this many seconds, not counting stalls of the machine.

    Infinite if there was none: then nothing can be required.
    """
    moments = []
    for begin, end in spans:
        first = max(begin, since)
        spare = end - first - seconds
        if spare >= 0 and spare >= record.fault_log.stalled_seconds(first, end):
            moments.append(first + seconds + record.fault_log.stalled_seconds(first, first + 2 * seconds))
    return min(moments, default=inf)


def _undisturbed(record: RunRecord, effects: Effect) -> dict[str, list[Span]]:
    """Return, by host, the periods in which it had a ready worker that none of these effects hindered."""
    ready: dict[str, list[float]] = {}
    for life in record.workers.values():
        ready.setdefault(life.host, []).append(life.ready_at)
    return {host: list(_spans(record, effects, host, sorted(times))) for host, times in sorted(ready.items())}


def _spans(record: RunRecord, effects: Effect, host: str, ready: Sequence[float]) -> Iterator[Span]:
    begin = ready[0]
    faults = record.fault_log.touching(host, begin, record.ended_at)
    for fault in sorted(faults, key=lambda fault: fault.began_at):
        blocks_reapers = fault.has(Effect.STORE_WAITS) and fault.seconds > record.bounds.reap
        if not fault.has(effects) and not blocks_reapers:
            continue
        if begin < fault.began_at:
            yield begin, fault.began_at
        begin = max(begin, _recovered_at(record, fault, ready))
    if begin < record.ended_at:
        yield begin, record.ended_at


def _recovered_at(record: RunRecord, fault: Fault, ready: Sequence[float]) -> float:
    """Return when a host was well again after a fault; infinity: never."""
    if fault.has(Effect.HITS_ALL_ALIKE | Effect.STORE_FAILS | Effect.CALL_FAILS):
        return fault.ended_at + record.bounds.job_pause
    if fault.has(Effect.STORE_WAITS):
        return fault.ended_at
    if fault.has(Effect.FREEZES):  # its pool process may have lost its lease, and be replaced
        replaced = (at for at in ready if fault.began_at < at < fault.ended_at + LATE_SECONDS)
        return max([fault.ended_at, *replaced])
    return next((at for at in ready if at > fault.began_at), inf)


def _flatten(spans: Mapping[str, Sequence[Span]]) -> list[Span]:
    return [span for of_host in spans.values() for span in of_host]
