"""Runs many seeds, on as many cores as there are, and adds up what came of them."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tidegate.testing.simulation.figures import Verdict, simulate
from tidegate.testing.simulation.plan import Plan

_CHUNK = 5
"""Seeds that a process takes at once."""


@dataclass(slots=True)
class Totals:
    """Sums over many runs."""

    seeds: int = 0
    size: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    failed: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count one run."""
        self.seeds += 1
        self.size += verdict.size
        self.faults += verdict.faults
        self.met += verdict.met
        if verdict.violations:
            self.failed.append(verdict)


def sweep(plans: Sequence[Plan], *, jobs: int, told: Callable[[Verdict], None]) -> Totals:
    """Run these plans, telling each verdict as it comes; their order is not kept with several jobs."""
    totals = Totals()
    for verdict in map(simulate, plans) if jobs == 1 else _on_several(plans, jobs):
        totals.add(verdict)
        told(verdict)
    totals.failed.sort(key=lambda verdict: verdict.plan.seed)
    return totals


def _on_several(plans: Sequence[Plan], jobs: int) -> Iterator[Verdict]:
    chunks = [plans[begin : begin + _CHUNK] for begin in range(0, len(plans), _CHUNK)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with_parent) as pool:
        for done in as_completed([pool.submit(_simulate_each, chunk) for chunk in chunks]):
            yield from done.result()


def _end_with_parent() -> None:
    """Let this process end when the command is killed: a chunk of seeds goes on for minutes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="tidegate-parent-watch", daemon=True).start()


def _simulate_each(plans: Sequence[Plan]) -> list[Verdict]:
    return [simulate(plan) for plan in plans]
