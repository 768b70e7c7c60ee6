"""The pure parts of the harness that measures other queues: choosing, ratios, goals, table, JSON, moments."""

import json
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from benchmarks.harness import Settings, run_in_turns
from benchmarks.peers import catalogue, goals, table
from benchmarks.peers.catalogue import Contestant
from benchmarks.peers.results import Results
from benchmarks.peers.start_times import StartTimes

ROUNDS = {
    "bulk.rate": {"tidegate": [40_000.0, 20_000.0], "same-rows": [80_000.0, 50_000.0]},
    "drain.rate": {
        "tidegate": [12_000.0, 9_000.0],
        "limit": [20_000.0, 20_000.0],
        "pgqueuer": [5_000.0, 5_000.0],
    },
    "drain.worker_cpu": {"tidegate": [0.06, 0.08], "pgqueuer": [0.11, 0.11]},
    "drain.server_cpu": {"tidegate": [0.04, 0.04], "pgqueuer": [0.07, 0.07]},
    "grown.rate": {"tidegate": [11_400.0, 9_000.0]},
    "pickup.p50": {"tidegate": [4.0, 2.0], "limit": [1.0, 1.0]},
    "noise": {"tidegate": [0.1, 0.3], "limit": [0.0, 0.0], "pgqueuer": [0.2, 0.2]},
}


@pytest.fixture
def results() -> Results:
    return Results(catalogue.select_contestants(("limit", "pgqueuer")), ROUNDS, n=5_000)


def verdict(results: Results, words: str) -> goals.GoalResult:
    [found] = [each for each in goals.evaluate_goals(results) if words in each.goal]
    return found


def test_tidegate_is_measured_on_each_store_that_a_chosen_queue_uses():
    assert [each.name for each in catalogue.select_contestants(("huey",))] == ["tidegate-sqlite", "huey"]
    assert [each.name for each in catalogue.select_contestants(("limit", "pgqueuer"))] == [
        "tidegate",
        "limit",
        "same-rows",
        "pgqueuer",
    ]
    assert [each.name for each in catalogue.select_contestants(())] == list(catalogue.NAMES)


@pytest.mark.parametrize("contestant", [*catalogue.OURS, *catalogue.OTHERS], ids=lambda each: each.name)
def test_every_contestant_has_its_file(contestant: Contestant):
    assert (catalogue.HERE / contestant.file).is_file()
    if contestant.growth:
        sql = contestant.growth.read_text(encoding="utf-8")
        assert ":finished" in sql
        assert ":scheduled" in sql


def test_every_peer_is_pinned_where_it_is_installed_from():
    pinned = (catalogue.HERE / "requirements.txt").read_text()
    packages = json.loads((catalogue.HERE / "package.json").read_text())["dependencies"]
    for each in catalogue.OTHERS:
        assert each.package in packages if each.kind == "node" else each.package in pinned, each.name


def test_a_slow_queue_is_given_its_share_and_never_less_than_a_hundred():
    celery = next(each for each in catalogue.OTHERS if each.name == "celery")
    assert [celery.tasks(n) for n in (20_000, 200)] == [2_000, 100]


def test_a_ratio_is_the_median_over_neighbours_in_the_same_round(results: Results):
    assert results.ratio("tidegate", "bulk.rate", "same-rows") == pytest.approx(0.45)
    assert results.ratio("tidegate", "grown.rate", "tidegate", "drain.rate") == pytest.approx(0.975)
    assert results.ratio("tidegate", "two.rate", "limit") is None


def test_goals_are_met_or_not_or_not_measured(results: Results):
    assert verdict(results, "best Python peer").is_met
    assert verdict(results, "best Python peer").reached == "2.10 (pgqueuer)"
    assert verdict(results, "COPY").is_met is False
    assert verdict(results, "p50 ≤ 3×").is_met
    assert verdict(results, "p99 ≤ 5×").is_met is None
    assert verdict(results, "below every Python peer").is_met
    assert str(verdict(results, "COPY")).startswith("NOT MET")


def test_without_tidegate_there_are_no_goals():
    [limit] = [each for each in catalogue.OTHERS if each.name == "limit"]
    assert goals.evaluate_goals(Results([limit], ROUNDS, n=5_000)) == []


def test_the_table_has_a_row_each_and_a_dash_for_what_was_not_measured(results: Results):
    format_table = table.format_table(
        results, goals.evaluate_goals(results), {"pgqueuer": "1.6.0"}, Settings(n=5_000, rounds=2)
    )
    rows = {
        line.split()[0]: line.split()
        for line in format_table.splitlines()
        if line and not line.startswith(" ")
    }
    assert rows["pgqueuer"][:3] == ["pgqueuer", "1.6.0", "postgresql"]
    assert rows["tidegate"][2:5] == ["30,000", "–", "10,500"]
    assert rows["limit"][-1] == "0.0"
    assert "n = 5,000, 2 rounds" in format_table


def test_the_json_holds_every_round_the_goals_and_what_it_was_measured_on(results: Results, tmp_path: Path):
    path = tmp_path / "peers.json"
    table.write_json(
        str(path), results, goals.evaluate_goals(results), {"postgresql": "15.18"}, Settings(n=5_000), 0.0
    )
    whole = json.loads(path.read_text())
    assert whole["versions"]["postgresql"] == "15.18"
    assert {"cpu", "cores", "kernel"} <= set(whole["machine"])
    assert whole["settings"]["n"] == 5_000
    by_name = {each["name"]: each for each in whole["contestants"]}
    assert by_name["pgqueuer"]["rounds"]["drain.rate"] == [5_000.0, 5_000.0]
    assert by_name["tidegate"]["medians"]["bulk.rate"] == 30_000.0
    assert {goal["met"] for goal in whole["goals"]} == {True, False, None}


def test_moments_are_seen_across_processes_and_merged(tmp_path: Path):
    moments = StartTimes(tmp_path, count=3, workers=2)
    for path, numbers in zip(moments.paths, ((0, 2), (1,)), strict=True):
        code = f"from benchmarks.peers.start_times import began; [began(number) for number in {numbers}]"
        env = {"BENCH_MOMENTS": str(path), "PYTHONPATH": str(Path(__file__).parent.parent)}
        subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=30)
    assert moments.begun() == [2, 1]
    assert moments.all()[0] <= moments.all()[2] <= moments.all()[1]


def test_a_rate_begins_when_every_worker_has_begun(tmp_path: Path):
    moments = StartTimes(tmp_path, count=6, workers=2)
    moments.paths[0].write_bytes(array("d", [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]).tobytes())
    moments.paths[1].write_bytes(array("d", [0.0, 0.0, 0.0, 0.0, 2.5, 4.5]).tobytes())
    assert moments.rate() == pytest.approx(3 / 2.0)


def test_a_queue_that_failed_in_a_round_is_left_out_of_the_results():
    rounds = {"noise": {"limit": [0.1, 0.2], "pgqueuer": [0.1]}, "bulk.rate": {"limit": [1.0, 2.0]}}
    results = Results.complete(catalogue.select_contestants(("limit", "pgqueuer")), rounds, n=5_000)
    assert [each.name for each in results.contestants] == ["limit"]
    assert Results.complete(catalogue.select_contestants(()), {}, n=5_000).contestants == []


def test_rounds_are_logged_as_they_end():
    reported = []
    run_in_turns(
        2, {"one": lambda: {"rate": 1.0}}, on_round=lambda rounds: reported.append(len(rounds["rate"]["one"]))
    )
    assert reported == [1, 2]
