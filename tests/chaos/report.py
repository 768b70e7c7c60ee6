"""What a run says in the end: a table for people, one object for scripts, and the histories that offend."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from chaos.faults import SHARED, STOPS, WORKER_KILLS, Hush, Kind
from chaos.judge import Verdict
from chaos.seen import Seen
from tidegate.domain.states import FINAL, State
from tidegate.testing.checker import INVARIANTS

_HISTORIES_SHOWN = 10
_NEAR_SECONDS = 5.0


def to_plain(seen: Seen, verdict: Verdict) -> dict[str, Any]:
    """Return all figures of a run, for JSON."""
    counts, states = seen.journal.count(), _states(seen)
    return {
        "ok": not verdict.violations,
        "seed": seen.plan.seed,
        "seconds": seen.plan.seconds,
        "duration_s": round(seen.ended_at - seen.began_at, 1),
        "workers": seen.plan.workers,
        "slots": seen.plan.slots,
        "lease_s": seen.plan.lease,
        "tasks": len(seen.record.rows),
        "tasks_by_state": states,
        "lost": _lost(seen),
        "dead_by_reason": dict(
            Counter(row.reason for row in seen.record.rows.values() if row.state is State.DEAD)
        ),
        "enqueues_resent_by_another_process": seen.clients.resent,
        "runs": sum(entry.kind == "run" for entries in seen.record.histories.values() for entry in entries),
        "kills": seen.journal.worker_kills,
        "faults": {kind.value: counts[kind] for kind in Kind if counts[kind]},
        "outages_and_freezes": [_hush_plain(seen, hush) for hush in seen.journal.hushes],
        "reruns_by_reason": dict(verdict.reasons.most_common()),
        "zombie_starts_explained": verdict.zombies,
        "overlaps_explained": verdict.overlaps,
        "recovery_s": {
            name: [round(value, 2) for value in figures] for name, figures in _recovery(verdict).items()
        },
        "recovery_bound_s": round(seen.plan.orphan_bound, 2),
        "settled_after_s": None if seen.settled_after is None else round(seen.settled_after, 1),
        "last_drain_s": round(seen.longest_drain, 1),
        "machine_stalls_s": _seconds(seen, Kind.STALL),
        "store_blocked_s": _seconds(seen, Kind.BLOCKED),
        "invariants_checked": [*INVARIANTS, "I14"],
        "violations": [str(violation) for violation in verdict.violations],
    }


def table(seen: Seen, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield the lines of the final table: what, and how much in words."""
    plan, counts = seen.plan, seen.journal.count()
    yield "seed", str(plan.seed)
    yield "duration", f"{seen.ended_at - seen.began_at:.1f} s, {plan.seconds:g} s of them with faults"
    yield (
        "world",
        f"{plan.workers} workers of {plan.slots} slots, {plan.clients} clients, lease {plan.lease:g} s",
    )
    states = ", ".join(f"{count} {state}" for state, count in _states(seen).items())
    yield "tasks", f"{len(seen.record.rows)}: {states}"
    dead = Counter(row.reason for row in seen.record.rows.values() if row.state is State.DEAD)
    yield "dead", _counted(dead) or "none"
    yield "lost", str(_lost(seen))
    yield "kills", f"{seen.journal.worker_kills}: {_counted({kind: counts[kind] for kind in WORKER_KILLS})}"
    yield (
        "clients killed",
        f"{counts[Kind.KILL_CLIENT]}, {seen.clients.resent} enqueues sent again by the next",
    )
    yield (
        "stops",
        f"{sum(counts[kind] for kind in STOPS)}: {_counted({kind: counts[kind] for kind in STOPS})}",
    )
    yield "drains", str(counts[Kind.DRAIN])
    for kind in SHARED:
        for hush in seen.journal.hushes:
            if hush.fault.kind is kind:
                yield kind.value, _hush_words(seen, hush)
    yield "re-runs", str(sum(verdict.reasons.values()))
    for reason, count in verdict.reasons.most_common():
        yield f"  {count}", reason
    yield "zombies", f"{verdict.zombies} late starts, {verdict.overlaps} overlaps, each with its fault"
    for name, (middle, longest, count) in _recovery(verdict).items():
        yield f"recovery, {name}", f"{middle:.2f} s in the middle, {longest:.2f} s at most, of {count}"
    yield (
        "settled",
        "never" if seen.settled_after is None else f"{seen.settled_after:.1f} s after the last fault",
    )
    yield "machine stalls", _lengths(seen, Kind.STALL)
    yield "store blocked", _lengths(seen, Kind.BLOCKED)
    yield "violations", str(len(verdict.violations))


def offending(seen: Seen, verdict: Verdict) -> Iterator[str]:
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
        yield from _life(seen, task_id)


def _life(seen: Seen, task_id: str) -> Iterator[str]:
    """Yield one task's history, its bodies' notes and what was done to its workers, by time."""
    row = seen.record.rows.get(task_id)
    yield f"{task_id} {row.function if row else ''}: {row.state if row else 'is not there'}"
    lines: list[tuple[float, str]] = []
    hosts: set[str] = set()
    for entry in seen.record.histories.get(task_id, ()):
        host = seen.processes.host_of(entry.worker_id)
        hosts.add(host)
        lines.append((entry.at, f"{entry.kind} {entry.run or ''} by {entry.worker_id} on {host}"))
        if entry.ended_at is not None:
            how = f"{entry.outcome} {entry.charge} {entry.why}"
            lines.append((entry.ended_at, f"run {entry.run} {how}"))
    for note in seen.notes:
        if note.task_id == task_id:
            lines.append(
                (note.at, f"body: {note.event} of run {note.run} in process {note.pid} {note.error}")
            )
    for cancel in seen.clients.told.cancels:
        if cancel.task_id == task_id:
            lines.append((cancel.at, f"cancel answered {cancel.answer}"))
    if lines:
        begin, end = min(at for at, _ in lines) - _NEAR_SECONDS, max(at for at, _ in lines) + _NEAR_SECONDS
        for fault in seen.journal.faults:
            if fault.host in hosts | {""} and fault.touches(fault.host, begin, end):
                lines.append((fault.began_at, f"FAULT {fault} {sorted(fault.pids)}"))
    for at, text in sorted(lines):
        yield f"  {time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03d} {text}"


# --- figures ---------------------------------------------------------------------------------------------


def _states(seen: Seen) -> dict[str, int]:
    return dict(Counter(row.state.value for row in seen.record.rows.values()).most_common())


def _lost(seen: Seen) -> int:
    """Count the tasks that were accepted, and are not there or not final."""
    accepted = {one.task_id for one in seen.clients.told.submitted if one.ok}
    rows = seen.record.rows
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


def _hush_words(seen: Seen, hush: Hush) -> str:
    finished = "never" if hush.finished_after is None else f"{hush.finished_after:.1f} s"
    return f"{hush.fault.what}; first finish {finished} after; {_re_run(seen, hush)} run again for it"


def _hush_plain(seen: Seen, hush: Hush) -> dict[str, Any]:
    return {
        "kind": hush.fault.kind.value,
        "what": hush.fault.what,
        "running": len(hush.running),
        "first_finish_after_s": hush.finished_after,
        "run_again": _re_run(seen, hush),
    }


def _re_run(seen: Seen, hush: Hush) -> int:
    return sum(
        entry.run == fence.run and entry.ended_at is not None and entry.ended_at <= hush.quiet_until
        for fence in hush.running
        for entry in seen.record.histories.get(fence.task_id, ())
        if entry.kind == "run" and entry.charge in {"loss", "crash", "release"}
    )


def _seconds(seen: Seen, kind: Kind) -> list[float]:
    return [round(fault.ended_at - fault.began_at, 3) for fault in seen.journal.faults if fault.kind is kind]


def _lengths(seen: Seen, kind: Kind) -> str:
    lengths = _seconds(seen, kind)
    if not lengths:
        return "0"
    return f"{len(lengths)}, {max(lengths):.2f} s the longest, {sum(lengths):.2f} s in all"


def _counted(counts: dict[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
