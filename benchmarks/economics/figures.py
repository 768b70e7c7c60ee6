"""From runs to figures and goals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from benchmarks.economics.scenarios import SLOTS, WORKERS, Scenario, ScenarioResult
from tidegate.domain.spec import TaskSpec
from tidegate.policy.charge import UNCHARGED_LIMIT

MAX_ATTEMPTS = TaskSpec("").max_attempts


@dataclass(frozen=True)
class Figure:
    """One figure of one scenario."""

    scenario: str
    name: str
    ours: float
    reference: float
    goal: str
    met: bool


def figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    """Return the figures of one scenario with their goals."""
    if scenario.outage is not None:
        return _outage_figures(scenario, run, ideal)
    if scenario.faulty:
        return _faulty_figures(scenario, run, ideal)
    if scenario.poisoned:
        return _poison_figures(scenario, run, ideal)
    if scenario.counts_tokens:
        return _token_figures(scenario, run, ideal)
    if scenario.grows:
        return _growing_figures(scenario, run, ideal)
    if scenario.declared != 1.0 or scenario.window is not None:
        return _learning_figures(scenario, run, ideal)
    return _backlog_figures(scenario, run, ideal)


def _token_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    """Return how much of a quota of tokens is used. The reference paces by calls and knows no tokens."""
    goodput, best = _goodput(scenario, run), _goodput(scenario, ideal)
    share, theirs = (_answered(each, 429) / max(1, len(each.calls)) for each in (run, ideal))
    shortest = sum(call.cost for call in run.calls if call.status == 200) / scenario.quota
    return [
        Figure(scenario.name, "goodput ÷ quota", goodput, best, "≥ 0.97", goodput >= 0.97),
        Figure(scenario.name, "429s ÷ calls", share, theirs, "≤ 0.001", share <= 0.001),
        Figure(scenario.name, "time, s", run.finished_at, ideal.finished_at, f"≤ 1.05 × {shortest:.1f}",
               run.finished_at <= 1.05 * shortest),
        Figure(scenario.name, "dead", run.dead, ideal.dead, "0", run.dead == 0),
    ]  # fmt: skip


def _growing_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    """Return how well slots that grow by themselves use a quota, or a server that answers no 429."""
    if scenario.places is None:
        goodput, best = _goodput(scenario, run), _goodput(scenario, ideal)
        share, theirs = (_answered(each, 429) / max(1, len(each.calls)) for each in (run, ideal))
        return [
            Figure(scenario.name, "goodput ÷ quota", goodput, best, "≥ 0.97", goodput >= 0.97),
            Figure(scenario.name, "429s ÷ calls", share, theirs, "≤ 0.001", share <= 0.001),
        ]
    at_most = scenario.places / scenario.latency
    rate, best = (_late_rate(scenario, each) / at_most for each in (run, ideal))
    flying, theirs = (_late_in_flight(scenario, each) / scenario.places for each in (run, ideal))
    return [
        Figure(scenario.name, "throughput ÷ its best", rate, best, "≥ 0.95", rate >= 0.95),
        Figure(scenario.name, "in flight ÷ what that needs", flying, theirs, "≤ 1.5", flying <= 1.5),
    ]


def _late_rate(scenario: Scenario, run: ScenarioResult) -> float:
    """Return the calls a second in the second half."""
    middle = scenario.seconds / 2
    return sum(middle <= call.at < scenario.seconds for call in run.calls) / middle


def _late_in_flight(scenario: Scenario, run: ScenarioResult) -> float:
    """Return how many calls were in flight in the second half, on average over the calls."""
    late = [call.in_flight for call in run.calls if call.at >= scenario.seconds / 2]
    return sum(late) / max(1, len(late))


def _learning_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    """Return how much of a quota is used that the application does not know, and its 429s."""
    least, most = (0.97, 0.02) if scenario.declared else (0.95, 0.01)
    if scenario.window is not None:
        most = 0.001
    goodput, best = _goodput(scenario, run), _goodput(scenario, ideal)
    share, theirs = (_answered(each, 429) / max(1, len(each.calls)) for each in (run, ideal))
    figures = [
        Figure(scenario.name, "goodput ÷ quota", goodput, best, f"≥ {least}", goodput >= least),
        Figure(scenario.name, "429s ÷ calls", share, theirs, f"≤ {most:g}", share <= most),
        Figure(scenario.name, "dead", run.dead, ideal.dead, "0", run.dead == 0),
    ]
    if scenario.drains:
        shortest = scenario.tasks / scenario.quota
        figures.append(
            Figure(scenario.name, "time, s", run.finished_at, ideal.finished_at, f"≤ 1.05 × {shortest:g}",
                   run.finished_at <= 1.05 * shortest)
        )  # fmt: skip
    return figures


def _backlog_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    def make(name: str, ours: float, theirs: float, goal: str, met: bool) -> Figure:
        return Figure(scenario.name, name, ours, theirs, goal, met)

    goodput, best = _goodput(scenario, run), _goodput(scenario, ideal)
    least = 0.97 if scenario.kills else 0.98
    throttled, answered = _answered(run, 429), sum(call.status != 0 for call in run.calls)
    spare = 0.005 * _needed(run) + (SLOTS if scenario.kills else 0)
    return [
        make("goodput ÷ quota", goodput, best, f"≥ {least}, or 0.015 below the reference",
             goodput >= least or goodput >= best - 0.015),
        make("calls answered 429", throttled, _answered(ideal, 429), "≤ 2 in 2,000",
             throttled <= max(2, len(run.calls) / 1000)),
        make("answered calls ÷ needed", answered / _needed(run), len(ideal.calls) / _needed(ideal),
             "≤ 1.005" + (f" and {SLOTS} of the killed" if scenario.kills else ""),
             answered <= _needed(run) + spare),
        make("failed", run.dead, ideal.dead, "0", run.dead == 0),
        make("lost", run.lost, ideal.lost, "0", run.lost == 0),
        make("CPU, ms a call", _cpu(run), _cpu(ideal), "≤ 10", _cpu(run) <= 10),
    ]  # fmt: skip


def _poison_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    poisoned = scenario.tasks // scenario.poisoned
    return [
        Figure(scenario.name, "calls ÷ poisoned task", _answered(run, 400) / poisoned,
               _answered(ideal, 400) / poisoned, "exactly 1", _answered(run, 400) == poisoned),
        Figure(scenario.name, "dead", run.dead, ideal.dead, f"{poisoned}", run.dead == poisoned),
    ]  # fmt: skip


def _faulty_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    """Return what tasks cost whose every call fails, and what they cost the others."""
    calls = Counter(call.task for call in run.calls)
    good = {call.task for call in run.calls if call.status == 200}
    most = max(calls[task] for task in calls.keys() - good)
    allowed = MAX_ATTEMPTS + (UNCHARGED_LIMIT if scenario.fault == 529 else 0)
    healthy, repeats = scenario.tasks - scenario.faulty, sum(calls[task] - 1 for task in good)
    pace = _completion_rate(run) / _completion_rate(ideal)
    return [
        Figure(scenario.name, "calls of a poisoned task", most, 1, f"≤ {allowed}", most <= allowed),
        Figure(scenario.name, "healthy work ÷ its pace", pace, 1, "≥ 0.95", pace >= 0.95),
        Figure(scenario.name, "healthy tasks done", len(good), healthy, f"{healthy}", len(good) == healthy),
        Figure(scenario.name, "healthy calls repeated", repeats, 0, "≤ 0.02 of them",
               repeats <= 0.02 * healthy),
        Figure(scenario.name, "dead", run.dead, scenario.faulty, f"{scenario.faulty}",
               run.dead == scenario.faulty),
    ]  # fmt: skip


def _completion_rate(run: ScenarioResult) -> float:
    """Return good answers a second, until 95% of them were there: the last ones may be a late retry."""
    moments = sorted(call.at for call in run.calls if call.status == 200)
    last = moments[int(0.95 * (len(moments) - 1))]
    return 0.95 * len(moments) / last


def _outage_figures(scenario: Scenario, run: ScenarioResult, ideal: ScenarioResult) -> list[Figure]:
    outage = scenario.outage
    assert outage is not None
    begins, ends = outage.begins, outage.begins + outage.seconds
    during = sum(begins <= call.at < ends for call in run.calls)
    allowed = WORKERS * SLOTS + outage.seconds
    ratio, best = len(run.calls) / scenario.tasks, len(ideal.calls) / scenario.tasks
    most = 1.03 if outage.hangs else 1.02
    peak = _recovery_peak(run, ends)
    drain, shortest = _caught_up(scenario, run, ends) - ends, _caught_up(scenario, ideal, ends) - ends
    return [
        Figure(scenario.name, "calls during it", during, sum(begins <= c.at < ends for c in ideal.calls),
               f"≤ {allowed:.0f}: in flight + one a second", during <= allowed),
        Figure(scenario.name, "calls ÷ needed", ratio, best, f"≤ {most}", ratio <= most),
        Figure(scenario.name, "peak in the first second after ÷ quota", peak / scenario.quota,
               _recovery_peak(ideal, ends) / scenario.quota, "≤ 0.5", peak <= 0.5 * scenario.quota),
        Figure(scenario.name, "collapses", run.collapses, ideal.collapses, "0", run.collapses == 0),
        Figure(scenario.name, "drain, s", drain, shortest, "≤ 1.15 × reference", drain <= 1.15 * shortest),
        Figure(scenario.name, "lost", run.lost, ideal.lost, "0", run.lost == 0),
        Figure(scenario.name, "dead", run.dead, ideal.dead, "0", run.dead == 0),
    ]  # fmt: skip


def _goodput(scenario: Scenario, run: ScenarioResult) -> float:
    """Return good answers as a part of what the quota allows, from the second second to the arrivals' end.

    The provider's bucket is full at first; nobody is told of that, so the first second is left out.
    """
    ends = scenario.seconds - 0.5
    good = sum(call.cost for call in run.calls if call.status == 200 and 1.0 <= call.at < ends)
    return good / (scenario.quota * (ends - 1.0))


def _answered(run: ScenarioResult, status: int) -> int:
    return sum(call.status == status for call in run.calls)


def _needed(run: ScenarioResult) -> int:
    """Return the tasks that were answered well."""
    return len({call.task for call in run.calls if call.status == 200})


def _recovery_peak(run: ScenarioResult, at: float) -> int:
    """Return the calls in the second after the first good one that follows an outage."""
    back = min((call.at for call in run.calls if call.at >= at and call.status == 200), default=at)
    return sum(back <= call.at < back + 1.0 for call in run.calls)


def _caught_up(scenario: Scenario, run: ScenarioResult, ends: float) -> float:
    """Return when, after an outage, no more was left than a second's arrivals and what may be in flight."""
    pace, few = scenario.quota * scenario.load, scenario.quota * scenario.load + WORKERS * SLOTS
    for done, at in enumerate(sorted(call.at for call in run.calls if call.status == 200), start=1):
        if at >= ends and done >= min(scenario.tasks, pace * at) - few:
            return at
    return run.finished_at


def _cpu(run: ScenarioResult) -> float:
    return run.cpu / max(1, len(run.calls)) * 1000
