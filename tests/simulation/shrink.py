"""Make a failing plan smaller (fewer kinds of faults, fewer tasks, less time) while it fails the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulation.plan import SimulationPlan

Fails = Callable[[SimulationPlan], bool]
"""Whether a plan fails in the same way."""

MOST_RUNS = 30


def shrink(plan: SimulationPlan, fails: Fails, *, most_runs: int = MOST_RUNS) -> SimulationPlan:
    """Return the smallest plan that fails in the same way, found with a limited number of runs."""
    runs = 0
    changed = True
    while changed and runs < most_runs:
        changed = False
        for smaller in _shrunk(plan):
            runs += 1
            if fails(smaller):
                plan, changed = smaller, True
                break
            if runs >= most_runs:
                break
    return plan


def _shrunk(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    if plan.tasks > 1:
        yield replace(plan, tasks=plan.tasks // 2)
    if plan.leases > 2:
        yield replace(plan, leases=plan.leases / 2)
    for kind in sorted(plan.faults):
        yield replace(plan, faults=plan.faults - {kind})
    if plan.tasks > 3:
        yield replace(plan, tasks=plan.tasks * 3 // 4)
    if plan.leases > 3:
        yield replace(plan, leases=plan.leases * 0.75)
