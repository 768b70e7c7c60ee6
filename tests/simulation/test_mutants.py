"""The simulation must be able to fail: each seeded bug is caught within a few seeds."""

from __future__ import annotations

import pytest

from simulation import SimulationPlan, simulate
from simulation.mutants import MUTANTS, Mutant

SEEDS = 40
"""A bug that needs more is one that a hundred seeds may miss."""


def seeds_until_caught(mutant: Mutant) -> int:
    first, faults = mutant.first_seed, mutant.faults
    others = [seed for seed in range(SEEDS - 1) if seed != first]
    plans = [SimulationPlan(first, tasks=12, leases=5.0, faults=faults)]
    plans += [SimulationPlan(seed, faults=faults) for seed in (first, *others)]
    for tried, plan in enumerate(plans[:SEEDS], 1):
        if simulate(plan).broken & mutant.caught_by:
            return tried
    pytest.fail(f"{mutant.name} was not caught within {SEEDS} seeds")


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.is_quick], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_a_seeded_bug(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert seeds_until_caught(mutant) <= SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.is_quick], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_the_rarer_bugs_too(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert seeds_until_caught(mutant) <= SEEDS


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_without_a_seeded_bug_the_same_seeds_are_clean(seed: int) -> None:
    for faults in sorted({mutant.faults for mutant in MUTANTS if mutant.is_quick}, key=sorted):
        assert simulate(SimulationPlan(seed, tasks=12, leases=5.0, faults=faults)).violations == ()


def test_there_are_enough_seeded_bugs() -> None:
    assert len(MUTANTS) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
