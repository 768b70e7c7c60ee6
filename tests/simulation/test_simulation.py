"""The real engine in virtual time with many faults: every invariant holds, and a seed repeats its run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from simulation import FaultKind, SimulationPlan, SimulationResult, shrink, simulate, sweep
from simulation.__main__ import main
from tidegate.store.rows import EnqueueResult, NewTask
from tidegate.store.sqlite.store import SqliteStore

TESTS = str(Path(__file__).parents[1])
SMALL: dict[str, Any] = {"tasks": 12, "leases": 5.0}
FINGERPRINTS = """
import sys
import time
from simulation import SimulationPlan, simulate
for seed in sys.argv[1:]:
    print(simulate(SimulationPlan(int(seed), tasks=12, leases=5.0)).fingerprint)
"""


def describe(result: SimulationResult) -> str:
    return "\n".join([result.plan.command(), *map(str, result.violations), *map(str, result.histories)])


def in_fives(seeds: range) -> list[Any]:
    """Return each fifth seed. Those from 10 on only add breadth, as `make simulate` does, so they are slow."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 10 else []) for seed in seeds[::5]]


@pytest.mark.parametrize("first", in_fives(range(100)))
def test_a_hundred_small_seeds_break_no_invariant(first: int) -> None:
    for seed in range(first, first + 5):
        result = simulate(SimulationPlan(seed, **SMALL))
        assert not result.violations, describe(result)


FAULTS = {str(kind) for kind in SimulationPlan(0).faults - {FaultKind.BROKEN}} | {
    f"a {what} that raised" for what in ("backoff", "codec", "store")
}
OUTCOMES = {
    "retrying: loss",
    "ends answered already",
    "released: its claim was never answered",
    "released: released by shutdown",
    "orphans due in time",
    "outages over two leases",
}


def test_a_dozen_full_seeds_reach_the_faults_and_outcomes_of_interest() -> None:
    faults, outcomes, size = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(20_000, 20_012):
        result = simulate(SimulationPlan(seed))
        assert not result.violations, describe(result)
        faults, outcomes, size = faults + result.faults, outcomes + result.outcomes, size + result.size
        is_reached = faults.keys() >= FAULTS and outcomes.keys() >= OUTCOMES
        if is_reached and size["crashes"] >= 20 and size["virtual seconds"] >= 600:
            break
    assert FAULTS - faults.keys() == set()
    assert OUTCOMES - outcomes.keys() == set()
    assert size["crashes"] >= 20
    assert size["virtual seconds"] >= 600


def test_without_faults_nothing_is_lost_and_nothing_runs_twice() -> None:
    result = simulate(SimulationPlan(3, faults=frozenset()))
    assert not result.violations, describe(result)
    assert result.faults == Counter()
    assert not any("loss" in what or "crash" in what or "answered" in what for what in result.outcomes)


@pytest.mark.parametrize("size", [SMALL, pytest.param({}, marks=pytest.mark.slow)], ids=["small", "full"])
def test_the_same_seed_gives_the_same_history_in_one_process(size: dict[str, Any]) -> None:
    first, other, second = (simulate(SimulationPlan(seed, **size)) for seed in (11, 12, 11))
    assert first.fingerprint == second.fingerprint
    assert first == second
    assert first.fingerprint != other.fingerprint


def test_the_same_seed_gives_the_same_history_in_every_process() -> None:
    seeds = ["31", "32"]
    here = [simulate(SimulationPlan(int(seed), **SMALL)).fingerprint for seed in seeds]
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", FINGERPRINTS, *seeds],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": TESTS},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        )
        assert there.stdout.split() == here


def test_several_processes_find_what_one_finds() -> None:
    plans = [SimulationPlan(seed, **SMALL) for seed in range(40, 43)]
    one = sweep(plans, jobs=1, on_result=lambda result: None)
    two = sweep(plans, jobs=2, on_result=lambda result: None)
    assert (one.seeds, one.size, one.faults, one.outcomes) == (two.seeds, two.size, two.faults, two.outcomes)


def test_a_failing_seed_prints_the_command_and_the_task_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def hasty(store: SqliteStore, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        return [EnqueueResult(task.id, created=True) for task in tasks]

    monkeypatch.setattr(SqliteStore, "enqueue", hasty)
    path = tmp_path / "figures.json"
    arguments = ["--seed", "3", "--tasks", "20", "--leases", "6", "--no-shrink", "--json", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "seed 3 breaks I1" in done.output
    assert "repeat it: PYTHONPATH=tests python -m simulation --seed 3 --tasks 20 --leases 6" in done.output
    assert "no such task" in done.output
    [failed] = json.loads(path.read_text())["failed"]
    assert failed["command"].endswith("--seed 3 --tasks 20 --leases 6")
    assert any(violation.startswith("I1 ") for violation in failed["violations"])


def test_a_clean_run_prints_its_figures_and_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    arguments = ["--seeds", "2", "--tasks", "10", "--leases", "4", "--jobs", "1", "--json", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    for word in ("2 seeds in", "steps", "virtual hours", "crashes", "faults", "met"):
        assert word in done.output
    figures = json.loads(path.read_text())
    assert figures["seeds"] == 2
    assert figures["failed"] == []
    assert figures["steps"] > 1000


def test_shrinking_keeps_what_makes_a_plan_fail_and_drops_the_rest() -> None:
    def fails(plan: SimulationPlan) -> bool:
        return FaultKind.PAUSE in plan.faults and plan.tasks >= 5

    smaller = shrink(SimulationPlan(7), fails)
    assert fails(smaller)
    assert smaller.faults == {FaultKind.PAUSE}
    assert smaller.tasks == 5
    assert smaller.leases <= 3.0
    assert smaller.command().startswith("PYTHONPATH=tests python -m simulation --seed 7 --tasks 5 --leases ")
    assert smaller.command().endswith("--faults pause")


def test_shrinking_takes_no_more_runs_than_it_may() -> None:
    runs: list[SimulationPlan] = []

    def fails(plan: SimulationPlan) -> bool:
        runs.append(plan)
        return False

    assert shrink(SimulationPlan(7), fails, most_runs=4) == SimulationPlan(7)
    assert len(runs) == 4


def test_a_command_that_is_killed_leaves_no_process_behind() -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "simulation", "--seeds", "200", "--jobs", "2"],
        env=os.environ | {"PYTHONPATH": TESTS},
        stdout=subprocess.DEVNULL,
    )
    try:
        me, ends_at = psutil.Process(command.pid), time.monotonic() + 30
        while len(me.children()) < 3:  # two of its own, and multiprocessing's tracker
            assert time.monotonic() < ends_at
            time.sleep(0.05)
        children = me.children()
    finally:
        command.kill()
        command.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
