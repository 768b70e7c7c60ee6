"""What a run amounted to, in numbers, and what came of it, in a form that crosses processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tidegate.domain.outcome import Answer, Dead, Outcome, Released, Retrying
from tidegate.domain.states import State
from tidegate.testing.checker import Violation
from tidegate.testing.simulation.judge import judge
from tidegate.testing.simulation.losses import due_orphans
from tidegate.testing.simulation.plan import FaultKind, Plan
from tidegate.testing.simulation.runs import finishes, held_runs
from tidegate.testing.simulation.story import fingerprint, story
from tidegate.testing.simulation.told import Told
from tidegate.testing.simulation.world import run_plan

_STORIES = 3
"""Tasks whose history is told of one failing run, at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one run."""

    plan: Plan
    fingerprint: str
    """Equal for runs that went the same way."""
    size: Counter[str] = field(default_factory=Counter)
    """Steps, virtual seconds, machines, tasks, runs."""
    faults: Counter[str] = field(default_factory=Counter)
    """What was done to it."""
    met: Counter[str] = field(default_factory=Counter)
    """What the engine went through."""
    violations: tuple[Violation, ...] = ()
    stories: tuple[tuple[str, ...], ...] = ()
    """Histories of the first tasks at fault, in lines."""

    @property
    def broken(self) -> frozenset[str]:
        """The invariants that were broken."""
        return frozenset(violation.invariant for violation in self.violations)


def simulate(plan: Plan) -> Verdict:
    """Run a plan and judge it."""
    told = run_plan(plan)
    violations = tuple(judge(told))
    at_fault = list(dict.fromkeys(v.task_id for v in violations if v.task_id))[:_STORIES]
    return Verdict(
        plan=plan,
        fingerprint=fingerprint(told),
        size=_size(told),
        faults=Counter(told.journal.injected),
        met=_met(told),
        violations=violations,
        stories=tuple(tuple(story(told, task_id)) for task_id in at_fault),
    )


def _size(told: Told) -> Counter[str]:
    rows = told.record.rows.values()
    return Counter(
        {
            "steps": told.steps,
            "virtual seconds": round(told.virtual_seconds),
            "crashes": told.journal.crashes,
            "worker machines": len(told.journal.entered),
            "tasks": len(rows),
            "runs": sum(row.run for row in rows),
            "commits": len(told.journal.commits),
        }
    )


def _met(told: Told) -> Counter[str]:
    due = due_orphans(told, held_runs(told.journal))
    met: Counter[str] = Counter({"orphans due in time": sum(1 for _ in due)})
    for _, outcome, answer in finishes(told.journal):
        if answer is Answer.DONE:
            met[_word(outcome)] += 1
        else:
            met[f"ends answered {answer}"] += 1
    for row in told.record.rows.values():
        if row.state is State.CANCELLED:
            met["tasks cancelled"] += 1
    met["redrives"] = sum(row.redrives for row in told.record.rows.values())
    met["outages over two leases"] = sum(
        fault.kind is FaultKind.OUTAGE and fault.ended_at - fault.began_at > 2 * told.scene.lease
        for fault in told.journal.faults
    )
    return met


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Retrying):
        return f"retrying: {outcome.charge if outcome.charge != 'attempt' else outcome.failure.reason}"
    if isinstance(outcome, Dead):
        return f"dead: {outcome.charge if outcome.charge != 'attempt' else outcome.failure.reason}"
    if isinstance(outcome, Released):
        return f"released: {outcome.why.partition(':')[0]}"
    return type(outcome).__name__.lower()
