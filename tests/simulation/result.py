"""The outcome of a run in numbers, in a form that can be sent between processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from checker import Violation, digest_of
from harness.checks import Verdict, check_run
from harness.commit_checks import finishes
from harness.history import task_history
from harness.record import TaskRun
from simulation.plan import FaultKind, SimulationPlan
from simulation.run_record import SimulationRecord
from simulation.simulation_run import run_plan
from tidegate.domain.outcome import Charge, FinishStatus
from tidegate.domain.states import State

_MAX_HISTORIES = 3
"""Most task histories that are printed of one failing run."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The outcome of one run."""

    plan: SimulationPlan
    fingerprint: str
    """Equal for runs that went the same way."""
    size: Counter[str] = field(default_factory=Counter)
    """Steps, virtual seconds, machines, tasks, runs."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to it."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """What the engine went through."""
    violations: tuple[Violation, ...] = ()
    histories: tuple[tuple[str, ...], ...] = ()
    """Histories of the first tasks at fault, in lines."""

    @property
    def broken(self) -> frozenset[str]:
        """The invariants that were broken."""
        return frozenset(violation.invariant for violation in self.violations)


def simulate(plan: SimulationPlan) -> SimulationResult:
    """Run a plan and check it."""
    record = run_plan(plan)
    verdict = check_run(record)
    at_fault = list(dict.fromkeys(v.task_id for v in verdict.violations if v.task_id))[:_MAX_HISTORIES]
    return SimulationResult(
        plan=plan,
        fingerprint=_fingerprint(record),
        size=_count_size(record),
        faults=Counter(record.injected),
        outcomes=_count_outcomes(record, verdict),
        violations=verdict.violations,
        histories=tuple(tuple(task_history(record, task_id)) for task_id in at_fault),
    )


def _count_size(record: SimulationRecord) -> Counter[str]:
    rows = record.snapshot.rows.values()
    return Counter(
        {
            "steps": record.steps,
            "virtual seconds": round(record.ended_at),
            "crashes": record.crashes,
            "worker machines": record.machines,
            "tasks": len(rows),
            "runs": sum(row.run for row in rows),
            "commits": len(record.commits),
        }
    )


def _count_outcomes(record: SimulationRecord, verdict: Verdict) -> Counter[str]:
    due = sum(one.decide_by < inf for one in verdict.recoveries)
    outcomes: Counter[str] = Counter({"orphans due in time": due})
    outcomes += Counter(_outcome_name(run) for run in record.runs.values() if run.outcome)
    outcomes += Counter(
        f"ends answered {answer}"
        for _, _, answer in finishes(record.commits)
        if answer is not FinishStatus.DONE
    )
    for row in record.snapshot.rows.values():
        if row.state is State.CANCELLED:
            outcomes["tasks cancelled"] += 1
    outcomes["late starts, each with its fault"] = len(verdict.late_starts)
    outcomes["overlaps, each with its fault"] = len(verdict.overlaps)
    outcomes["redrives"] = sum(row.redrives for row in record.snapshot.rows.values())
    outcomes["outages over two leases"] = sum(
        fault.kind is FaultKind.OUTAGE and fault.seconds > 2 * record.bounds.lease
        for fault in record.fault_log.faults
    )
    return outcomes


def _outcome_name(run: TaskRun) -> str:
    if run.outcome == "released":
        return f"released: {run.why.partition(':')[0]}"
    reason = run.charge if run.charge != Charge.ATTEMPT else run.reason
    return f"{run.outcome}: {reason}" if reason else run.outcome


def _fingerprint(record: SimulationRecord) -> str:
    """Return a digest of everything that happened: equal only for runs that went the same way."""
    everything = (
        record.commits,
        record.fault_log.faults,
        record.notes,
        sorted(record.injected.items()),
        record.observations.submitted,
        record.observations.cancels,
        sorted(record.observations.purged),
        sorted(record.snapshot.rows.items()),
        sorted(record.snapshot.histories.items()),
        sorted(record.snapshot.results.items()),
        record.steps,
        record.ended_at,
    )
    return digest_of(repr(everything).encode())
