"""The simulation must be able to fail: each seeded bug is caught within a few seeds."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, Mutant

from tidegate.testing.simulation import Plan, simulate

QUICK_SEEDS = 12
SEEDS = 40
TASKS, LEASES = 24, 8.0


def seeds_until_caught(mutant: Mutant, seeds: int) -> int:
    for seed in range(seeds):
        plan = Plan(seed, tasks=TASKS, leases=LEASES, faults=mutant.faults)
        if simulate(plan).broken & mutant.caught_by:
            return seed + 1
    pytest.fail(f"{mutant.name} was not caught within {seeds} seeds")


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.is_quick], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_a_seeded_bug(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.put_in(monkeypatch)
    assert seeds_until_caught(mutant, QUICK_SEEDS) <= QUICK_SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.is_quick], ids=lambda mutant: mutant.name)
def test_the_simulation_catches_the_rarer_bugs_too(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.put_in(monkeypatch)
    assert seeds_until_caught(mutant, SEEDS) <= SEEDS


@pytest.mark.parametrize("seed", range(3))
def test_without_a_seeded_bug_the_same_seeds_are_clean(seed: int) -> None:
    for faults in sorted({mutant.faults for mutant in MUTANTS if mutant.is_quick}, key=sorted):
        assert simulate(Plan(seed, tasks=TASKS, leases=LEASES, faults=faults)).violations == ()


def test_there_are_enough_seeded_bugs() -> None:
    assert len(MUTANTS) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
