"""Run many seeds on all cores and add up their outcomes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from simulation.plan import SimulationPlan
from simulation.result import SimulationResult, simulate

_SEEDS_PER_CHUNK = 5
"""Seeds that a process takes at once."""


@dataclass(slots=True)
class SweepTotals:
    """Sums over many runs."""

    seeds: int = 0
    size: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[SimulationResult] = field(default_factory=list)

    def add(self, result: SimulationResult) -> None:
        """Count one run."""
        self.seeds += 1
        self.size += result.size
        self.faults += result.faults
        self.outcomes += result.outcomes
        if result.violations:
            self.failed.append(result)


def sweep(
    plans: Sequence[SimulationPlan], *, jobs: int, on_result: Callable[[SimulationResult], None]
) -> SweepTotals:
    """Run these plans and report each verdict as it comes; several jobs do not keep their order."""
    totals = SweepTotals()
    for result in map(simulate, plans) if jobs == 1 else _in_processes(plans, jobs):
        totals.add(result)
        on_result(result)
    totals.failed.sort(key=lambda result: result.plan.seed)
    return totals


def _in_processes(plans: Sequence[SimulationPlan], jobs: int) -> Iterator[SimulationResult]:
    chunks = [plans[begin : begin + _SEEDS_PER_CHUNK] for begin in range(0, len(plans), _SEEDS_PER_CHUNK)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with_parent) as pool:
        for done in as_completed([pool.submit(_simulate_each, chunk) for chunk in chunks]):
            yield from done.result()


def _end_with_parent() -> None:
    """End this process when the command is killed: a chunk of seeds runs for minutes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="tidegate-parent-watch", daemon=True).start()


def _simulate_each(plans: Sequence[SimulationPlan]) -> list[SimulationResult]:
    return [simulate(plan) for plan in plans]
