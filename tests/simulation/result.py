"""The outcome of a run in numbers, in a form that can be sent between processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from checker import Violation
from simulation.claimed_runs import claimed_runs, finishes
from simulation.loss_checks import due_orphans
from simulation.plan import FaultKind, SimulationPlan
from simulation.run_checks import check_run
from simulation.run_record import RunRecord
from simulation.simulation_run import run_plan
from simulation.task_history import fingerprint, task_history
from tidegate.domain.outcome import Dead, FinishStatus, Outcome, Released, Retrying
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
    run_record = run_plan(plan)
    violations = tuple(check_run(run_record))
    at_fault = list(dict.fromkeys(v.task_id for v in violations if v.task_id))[:_MAX_HISTORIES]
    return SimulationResult(
        plan=plan,
        fingerprint=fingerprint(run_record),
        size=_count_size(run_record),
        faults=Counter(run_record.event_log.injected),
        outcomes=_count_outcomes(run_record),
        violations=violations,
        histories=tuple(tuple(task_history(run_record, task_id)) for task_id in at_fault),
    )


def _count_size(run_record: RunRecord) -> Counter[str]:
    rows = run_record.snapshot.rows.values()
    return Counter(
        {
            "steps": run_record.steps,
            "virtual seconds": round(run_record.virtual_seconds),
            "crashes": run_record.event_log.crashes,
            "worker machines": len(run_record.event_log.worker_started_at),
            "tasks": len(rows),
            "runs": sum(row.run for row in rows),
            "commits": len(run_record.event_log.commits),
        }
    )


def _count_outcomes(run_record: RunRecord) -> Counter[str]:
    due = due_orphans(run_record, claimed_runs(run_record.event_log))
    outcomes: Counter[str] = Counter({"orphans due in time": sum(1 for _ in due)})
    for _, outcome, answer in finishes(run_record.event_log):
        if answer is FinishStatus.DONE:
            outcomes[_outcome_name(outcome)] += 1
        else:
            outcomes[f"ends answered {answer}"] += 1
    for row in run_record.snapshot.rows.values():
        if row.state is State.CANCELLED:
            outcomes["tasks cancelled"] += 1
    outcomes["redrives"] = sum(row.redrives for row in run_record.snapshot.rows.values())
    outcomes["outages over two leases"] = sum(
        fault.kind is FaultKind.OUTAGE and fault.ended_at - fault.began_at > 2 * run_record.setup.lease
        for fault in run_record.event_log.faults
    )
    return outcomes


def _outcome_name(outcome: Outcome) -> str:
    if isinstance(outcome, Retrying):
        return f"retrying: {outcome.charge if outcome.charge != 'attempt' else outcome.failure.reason}"
    if isinstance(outcome, Dead):
        return f"dead: {outcome.charge if outcome.charge != 'attempt' else outcome.failure.reason}"
    if isinstance(outcome, Released):
        return f"released: {outcome.why.partition(':')[0]}"
    return type(outcome).__name__.lower()
