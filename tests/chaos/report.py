"""The report of a run: a table for people, one JSON object for scripts, and the histories with violations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from chaos.faults import SHARED, STOPS, WORKER_KILLS, ChaosFaultKind, GlobalFault
from chaos.run_checks import ChaosVerdict
from chaos.run_record import ChaosRecord
from checker import INVARIANTS
from tidegate.domain.states import FINAL, State

_HISTORIES_SHOWN = 10
_NEAR_SECONDS = 5.0


def to_plain(run_record: ChaosRecord, verdict: ChaosVerdict) -> dict[str, Any]:
    """Return all figures of a run, for JSON."""
    counts, states = run_record.fault_log.count(), _states(run_record)
    return {
        "ok": not verdict.violations,
        "seed": run_record.plan.seed,
        "seconds": run_record.plan.seconds,
        "duration_s": round(run_record.ended_at - run_record.began_at, 1),
        "workers": run_record.plan.workers,
        "slots": run_record.plan.slots,
        "lease_s": run_record.plan.lease,
        "tasks": len(run_record.snapshot.rows),
        "tasks_by_state": states,
        "lost": _lost(run_record),
        "dead_by_reason": dict(
            Counter(row.reason for row in run_record.snapshot.rows.values() if row.state is State.DEAD)
        ),
        "enqueues_resent_by_another_process": run_record.clients.sent_again,
        "runs": sum(
            entry.kind == "run" for entries in run_record.snapshot.histories.values() for entry in entries
        ),
        "kills": run_record.fault_log.worker_kills,
        "faults": {kind.value: counts[kind] for kind in ChaosFaultKind if counts[kind]},
        "outages_and_freezes": [
            _global_fault_json(run_record, global_fault)
            for global_fault in run_record.fault_log.global_faults
        ],
        "reruns_by_reason": dict(verdict.reasons.most_common()),
        "zombie_starts_explained": verdict.zombies,
        "overlaps_explained": verdict.overlaps,
        "recovery_s": {
            name: [round(value, 2) for value in figures] for name, figures in _recovery(verdict).items()
        },
        "recovery_bound_s": round(run_record.plan.orphan_bound, 2),
        "settled_after_s": None if run_record.final_after is None else round(run_record.final_after, 1),
        "last_drain_s": round(run_record.longest_drain, 1),
        "machine_stalls_s": _seconds(run_record, ChaosFaultKind.STALL),
        "store_blocked_s": _seconds(run_record, ChaosFaultKind.BLOCKED),
        "invariants_checked": [*INVARIANTS, "I14"],
        "violations": [str(violation) for violation in verdict.violations],
    }


def format_table(run_record: ChaosRecord, verdict: ChaosVerdict) -> Iterator[tuple[str, str]]:
    """Yield the rows of the final table: a name and a value."""
    plan, counts = run_record.plan, run_record.fault_log.count()
    yield "seed", str(plan.seed)
    yield (
        "duration",
        f"{run_record.ended_at - run_record.began_at:.1f} s, {plan.seconds:g} s of them with faults",
    )
    yield (
        "world",
        f"{plan.workers} workers of {plan.slots} slots, {plan.clients} clients, lease {plan.lease:g} s",
    )
    states = ", ".join(f"{count} {state}" for state, count in _states(run_record).items())
    yield "tasks", f"{len(run_record.snapshot.rows)}: {states}"
    dead = Counter(row.reason for row in run_record.snapshot.rows.values() if row.state is State.DEAD)
    yield "dead", _format_counts(dead) or "none"
    yield "lost", str(_lost(run_record))
    yield (
        "kills",
        f"{run_record.fault_log.worker_kills}: {_format_counts({kind: counts[kind] for kind in WORKER_KILLS})}",
    )
    yield (
        "clients killed",
        f"{counts[ChaosFaultKind.KILL_CLIENT]}, {run_record.clients.sent_again} enqueues sent again by the next",
    )
    yield (
        "stops",
        f"{sum(counts[kind] for kind in STOPS)}: {_format_counts({kind: counts[kind] for kind in STOPS})}",
    )
    yield "drains", str(counts[ChaosFaultKind.DRAIN])
    for kind in SHARED:
        for global_fault in run_record.fault_log.global_faults:
            if global_fault.fault.kind is kind:
                yield kind.value, _format_global_fault(run_record, global_fault)
    yield "re-runs", str(sum(verdict.reasons.values()))
    for reason, count in verdict.reasons.most_common():
        yield f"  {count}", reason
    yield "zombies", f"{verdict.zombies} late starts, {verdict.overlaps} overlaps, each with its fault"
    for name, (middle, longest, count) in _recovery(verdict).items():
        yield f"recovery, {name}", f"{middle:.2f} s in the middle, {longest:.2f} s at most, of {count}"
    yield (
        "settled",
        "never" if run_record.final_after is None else f"{run_record.final_after:.1f} s after the last fault",
    )
    yield "machine stalls", _lengths(run_record, ChaosFaultKind.STALL)
    yield "store blocked", _lengths(run_record, ChaosFaultKind.BLOCKED)
    yield "violations", str(len(verdict.violations))


def format_violations(run_record: ChaosRecord, verdict: ChaosVerdict) -> Iterator[str]:
    """Yield the violations, and all that is known of the lives of some of their tasks, of each kind in turn."""
    for violation in verdict.violations:
        yield f"VIOLATION {violation}"
    by_kind: dict[str, list[str]] = {}
    for violation in verdict.violations:
        if violation.task_id:
            by_kind.setdefault(violation.invariant, []).append(violation.task_id)
    tasks = [task_id for row in zip_longest(*by_kind.values()) for task_id in row if task_id is not None]
    for task_id in list(dict.fromkeys(tasks))[:_HISTORIES_SHOWN]:
        yield ""
        yield from _task_history(run_record, task_id)


def _task_history(run_record: ChaosRecord, task_id: str) -> Iterator[str]:
    """Yield a task's history, its functions' notes and the faults of its workers, by time."""
    row = run_record.snapshot.rows.get(task_id)
    yield f"{task_id} {row.function if row else ''}: {row.state if row else 'is not there'}"
    lines: list[tuple[float, str]] = []
    hosts: set[str] = set()
    for entry in run_record.snapshot.histories.get(task_id, ()):
        host = run_record.processes.host_of(entry.worker_id)
        hosts.add(host)
        lines.append((entry.at, f"{entry.kind} {entry.run or ''} by {entry.worker_id} on {host}"))
        if entry.ended_at is not None:
            how = f"{entry.outcome} {entry.charge} {entry.why}"
            lines.append((entry.ended_at, f"run {entry.run} {how}"))
    for note in run_record.notes:
        if note.task_id == task_id:
            lines.append(
                (note.at, f"body: {note.event} of run {note.run} in process {note.pid} {note.error}")
            )
    for cancel in run_record.clients.described.cancels:
        if cancel.task_id == task_id:
            lines.append((cancel.at, f"cancel answered {cancel.answer}"))
    if lines:
        begin, end = min(at for at, _ in lines) - _NEAR_SECONDS, max(at for at, _ in lines) + _NEAR_SECONDS
        for fault in run_record.fault_log.faults:
            if fault.host in hosts | {""} and fault.touches(fault.host, begin, end):
                lines.append((fault.began_at, f"FAULT {fault} {sorted(fault.pids)}"))
    for at, text in sorted(lines):
        yield f"  {time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03d} {text}"


# --- figures -------------------------------------------------------------------------------------------


def _states(run_record: ChaosRecord) -> dict[str, int]:
    return dict(Counter(row.state.value for row in run_record.snapshot.rows.values()).most_common())


def _lost(run_record: ChaosRecord) -> int:
    """Count the tasks that were accepted, and are not there or not final."""
    accepted = {one.task_id for one in run_record.clients.described.submitted if one.ok}
    rows = run_record.snapshot.rows
    return sum(task_id not in rows or rows[task_id].state not in FINAL for task_id in accepted)


def _recovery(verdict: ChaosVerdict) -> dict[str, tuple[float, float, int]]:
    """Return median, longest and number of the recoveries, by what was lost."""
    by_kind: dict[str, list[float]] = {}
    for one in verdict.recoveries:
        if one.seconds is not None:
            by_kind.setdefault("lease run out" if one.is_loss else "process dead", []).append(one.seconds)
    return {
        name: (sorted(values)[len(values) // 2], max(values), len(values))
        for name, values in sorted(by_kind.items())
    }


def _format_global_fault(run_record: ChaosRecord, global_fault: GlobalFault) -> str:
    finished = "never" if global_fault.finished_after is None else f"{global_fault.finished_after:.1f} s"
    return f"{global_fault.fault.what}; first finish {finished} after; {_rerun_of(run_record, global_fault)} run again for it"


def _global_fault_json(run_record: ChaosRecord, global_fault: GlobalFault) -> dict[str, Any]:
    return {
        "kind": global_fault.fault.kind.value,
        "what": global_fault.fault.what,
        "running": len(global_fault.running),
        "first_finish_after_s": global_fault.finished_after,
        "run_again": _rerun_of(run_record, global_fault),
    }


def _rerun_of(run_record: ChaosRecord, global_fault: GlobalFault) -> int:
    return sum(
        entry.run == fence.run
        and entry.ended_at is not None
        and entry.ended_at <= global_fault.observed_until
        for fence in global_fault.running
        for entry in run_record.snapshot.histories.get(fence.task_id, ())
        if entry.kind == "run" and entry.charge in {"loss", "crash", "release"}
    )


def _seconds(run_record: ChaosRecord, kind: ChaosFaultKind) -> list[float]:
    return [
        round(fault.ended_at - fault.began_at, 3)
        for fault in run_record.fault_log.faults
        if fault.kind is kind
    ]


def _lengths(run_record: ChaosRecord, kind: ChaosFaultKind) -> str:
    lengths = _seconds(run_record, kind)
    if not lengths:
        return "0"
    return f"{len(lengths)}, {max(lengths):.2f} s the longest, {sum(lengths):.2f} s in all"


def _format_counts(counts: dict[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
