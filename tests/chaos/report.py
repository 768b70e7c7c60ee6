"""The report of a run: a table for people, one JSON object for scripts, and the histories with violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from chaos.faults import SHARED, STOPS, WORKER_KILLS, ChaosFaultKind, GlobalFault
from chaos.run_checks import taken_at
from chaos.run_record import ChaosRecord
from harness.checks import CHECKED, Verdict
from harness.history import task_history
from harness.record import TaskRun
from tidegate.domain.outcome import Charge
from tidegate.domain.states import FINAL, State

_HISTORIES_SHOWN = 10


def to_plain(record: ChaosRecord, verdict: Verdict) -> dict[str, Any]:
    """Return all figures of a run, for JSON."""
    counts, states = record.fault_log.count(), _states(record)
    return {
        "ok": not verdict.violations,
        "seed": record.plan.seed,
        "seconds": record.plan.seconds,
        "duration_s": round(record.ended_at - record.began_at, 1),
        "workers": record.plan.workers,
        "slots": record.plan.slots,
        "lease_s": record.plan.lease,
        "tasks": len(record.snapshot.rows),
        "tasks_by_state": states,
        "lost": _lost(record),
        "dead_by_reason": dict(_dead(record)),
        "enqueues_resent_by_another_process": record.sent_again,
        "runs": len(record.runs),
        "kills": record.fault_log.worker_kills,
        "faults": {kind.value: counts[kind] for kind in ChaosFaultKind if counts[kind]},
        "outages_and_freezes": [
            _global_fault_json(record, global_fault) for global_fault in record.fault_log.global_faults
        ],
        "reruns_by_reason": dict(_reruns(record).most_common()),
        "zombie_starts_explained": len(verdict.late_starts),
        "overlaps_explained": len(verdict.overlaps),
        "recovery_s": {
            name: [round(value, 2) for value in figures] for name, figures in _recovery(verdict).items()
        },
        "recovery_bound_s": round(record.plan.orphan_bound, 2),
        "settled_after_s": None if record.final_after is None else round(record.final_after, 1),
        "steps": len(record.recorded_steps.rows),
        "step_calls_repeated": record.recorded_steps.paid_twice,
        "doubts": len(record.recorded_steps.doubts),
        "paid_calls": record.paid_calls.billed.total(),
        "paid_calls_in_flight_at_faults": record.paid_calls.in_flight.total(),
        "paid_twice": record.paid_calls.paid_twice,
        "answered_for_free": _replayed(record),
        "last_drain_s": round(record.longest_drain, 1),
        "machine_stalls_s": _seconds(record, ChaosFaultKind.STALL),
        "store_blocked_s": _seconds(record, ChaosFaultKind.BLOCKED),
        "invariants_checked": CHECKED,
        "violations": [str(violation) for violation in verdict.violations],
    }


def format_table(record: ChaosRecord, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the rows of the final table: a name and a value."""
    plan, counts = record.plan, record.fault_log.count()
    of_kinds = {
        kinds: _format_counts({kind: counts[kind] for kind in kinds}) for kinds in (WORKER_KILLS, STOPS)
    }
    late, overlaps, after = len(verdict.late_starts), len(verdict.overlaps), record.final_after
    yield "seed", str(plan.seed)
    yield "duration", f"{record.ended_at - record.began_at:.1f} s, {plan.seconds:g} s of them with faults"
    size = f"{plan.workers} workers of {plan.slots} slots, {plan.clients} clients"
    yield "world", f"{size}, lease {plan.lease:g} s"
    states = ", ".join(f"{count} {state}" for state, count in _states(record).items())
    yield "tasks", f"{len(record.snapshot.rows)}: {states}"
    yield "dead", _format_counts(_dead(record)) or "none"
    yield "lost", str(_lost(record))
    yield "kills", f"{record.fault_log.worker_kills}: {of_kinds[WORKER_KILLS]}"
    resent = f"{record.sent_again} enqueues sent again by the next"
    yield "clients killed", f"{counts[ChaosFaultKind.KILL_CLIENT]}, {resent}"
    yield "stops", f"{sum(counts[kind] for kind in STOPS)}: {of_kinds[STOPS]}"
    yield "drains", str(counts[ChaosFaultKind.DRAIN])
    for kind in SHARED:
        for global_fault in record.fault_log.global_faults:
            if global_fault.fault.kind is kind:
                yield kind.value, _format_global_fault(record, global_fault)
    yield "re-runs", str(sum(_reruns(record).values()))
    for reason, count in _reruns(record).most_common():
        yield f"  {count}", reason
    yield "zombies", f"{late} late starts, {overlaps} overlaps, each with its fault"
    for name, (middle, longest, count) in _recovery(verdict).items():
        yield f"recovery, {name}", f"{middle:.2f} s in the middle, {longest:.2f} s at most, of {count}"
    yield "settled", "never" if after is None else f"{after:.1f} s after the last fault"
    steps = record.recorded_steps
    yield "steps", f"{len(steps.rows)}; {steps.paid_twice} calls repeated, {len(steps.doubts)} doubts listed"
    paid = record.paid_calls
    again = f"{paid.paid_twice} paid again, {_replayed(record)} answered again for free"
    yield "paid calls", f"{paid.billed.total()}; {paid.in_flight.total()} in flight at faults, {again}"
    yield "machine stalls", _lengths(record, ChaosFaultKind.STALL)
    yield "store blocked", _lengths(record, ChaosFaultKind.BLOCKED)
    yield "violations", str(len(verdict.violations))


def format_violations(record: ChaosRecord, verdict: Verdict) -> Iterator[str]:
    """Yield the violations, and the histories of some of their tasks, of each kind in turn."""
    for violation in verdict.violations:
        yield f"VIOLATION {violation}"
    by_kind: dict[str, list[str]] = {}
    for violation in verdict.violations:
        if violation.task_id:
            by_kind.setdefault(violation.invariant, []).append(violation.task_id)
    tasks = [task_id for row in zip_longest(*by_kind.values()) for task_id in row if task_id is not None]
    for task_id in list(dict.fromkeys(tasks))[:_HISTORIES_SHOWN]:
        yield ""
        yield f"task {task_id}"
        yield from (f"  {line}" for line in task_history(record, task_id))


# --- figures -------------------------------------------------------------------------------------------


def _states(record: ChaosRecord) -> dict[str, int]:
    return dict(Counter(row.state.value for row in record.snapshot.rows.values()).most_common())


def _dead(record: ChaosRecord) -> Counter[str]:
    return Counter(row.reason for row in record.snapshot.rows.values() if row.state is State.DEAD)


def _lost(record: ChaosRecord) -> int:
    """Count the tasks that were accepted, and are not there or not final."""
    accepted = {one.task_id for one in record.observations.submitted if one.ok}
    rows = record.snapshot.rows
    return sum(task_id not in rows or rows[task_id].state not in FINAL for task_id in accepted)


def _recovery(verdict: Verdict) -> dict[str, tuple[float, float, int]]:
    """Return median, longest and number of the recoveries, by what was lost."""
    by_kind: dict[str, list[float]] = {}
    for one in verdict.recoveries:
        if one.seconds is not None:
            by_kind.setdefault("lease run out" if one.is_loss else "process dead", []).append(one.seconds)
    return {
        name: (sorted(values)[len(values) // 2], max(values), len(values))
        for name, values in sorted(by_kind.items())
    }


def _format_global_fault(record: ChaosRecord, global_fault: GlobalFault) -> str:
    finished = "never" if global_fault.finished_after is None else f"{global_fault.finished_after:.1f} s"
    taken = len(list(taken_at(record, global_fault)))
    return f"{global_fault.fault.what}; first finish {finished} after; {taken} run again for it"


def _global_fault_json(record: ChaosRecord, global_fault: GlobalFault) -> dict[str, Any]:
    return {
        "kind": global_fault.fault.kind.value,
        "what": global_fault.fault.what,
        "running": len(global_fault.running),
        "first_finish_after_s": global_fault.finished_after,
        "run_again": len(list(taken_at(record, global_fault))),
    }


def _reruns(record: ChaosRecord) -> Counter[str]:
    """Count the runs that did not end their task, by recorded reason."""
    return Counter(_reason(run) for run in record.runs.values() if run.outcome in {"retrying", "released"})


def _reason(run: TaskRun) -> str:
    """Return a short reason why a run was not the last one; many runs share a reason."""
    if run.charge in {Charge.RELEASE, Charge.INTERRUPTED}:
        return f"released: {run.why.partition(':')[0]}"
    if run.charge in {Charge.CRASH, Charge.LOSS}:
        return f"{run.charge}: {run.message.removeprefix('worker lost: ').partition(' for ')[0]}"
    if run.evidence == "ctx.retry":
        return f"ctx.retry ({'charged' if run.charge == Charge.ATTEMPT else 'uncharged'})"
    return f"failed: {run.error_class.rpartition('.')[2] or run.reason}"


def _replayed(record: ChaosRecord) -> int:
    """Count the calls that a provider answered by the answer it had given to their idempotency key."""
    return sum(call.outcome == "replayed" for call in record.paid_calls.ledger)


def _seconds(record: ChaosRecord, kind: ChaosFaultKind) -> list[float]:
    return [round(fault.seconds, 3) for fault in record.fault_log.faults if fault.kind is kind]


def _lengths(record: ChaosRecord, kind: ChaosFaultKind) -> str:
    lengths = _seconds(record, kind)
    if not lengths:
        return "0"
    return f"{len(lengths)}, {max(lengths):.2f} s the longest, {sum(lengths):.2f} s in all"


def _format_counts(counts: dict[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
