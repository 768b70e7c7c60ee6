"""What Tidegate should reach beside the others in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.catalogue import Contestant
from benchmarks.peers.results import Results

OURS, OURS_ON_SQLITE = "tidegate", "tidegate-sqlite"
LIMIT, SAME_ROWS, NODE, BOSS = "limit", "same-rows", "graphile-worker", "pg-boss"
POLL_SECONDS = 0.5
"""A pool's default."""
MANY = 1_000_000
LOCK_WAITS = 0.02
"""Connections that wait for a lock at a moment, on average: one look in fifty finds one."""
WORKER_CPU_SECONDS = 0.1
"""Of 1,000 tasks: 100 µs each."""


@dataclass(frozen=True, slots=True)
class GoalResult:
    """One goal, what was reached, and whether that is enough."""

    goal: str
    reached: str
    is_met: bool | None
    """None: it could not be judged, for want of somebody to compare with."""

    def __str__(self) -> str:
        """Say it in one line."""
        mark = {True: "met", False: "NOT MET", None: "not measured"}[self.is_met]
        return f"{mark:<12}  {self.goal}{': ' + self.reached if self.reached else ''}"


def evaluate_goals(results: Results) -> list[GoalResult]:
    """Return the goals of each store that Tidegate was measured on, with what was reached."""
    present = {each.name for each in results.contestants}
    on_postgresql = [*_rates(results), *_pickups(results), *_costs(results)] if OURS in present else []
    return on_postgresql + ([_on_sqlite(results)] if OURS_ON_SQLITE in present else [])


def _rates(results: Results) -> Iterator[GoalResult]:
    peer = results.best("drain.rate", _is_python_on_postgresql)
    yield _least(
        "drain ≥ 2× the best Python peer on PostgreSQL", _against(results, "drain.rate", peer), 2, peer
    )
    yield _least("drain ahead of pg-boss", _against(results, "drain.rate", BOSS), 1)
    yield _least("drain level with graphile-worker", _against(results, "drain.rate", NODE), 1)
    yield _least("drain ≥ 0.4 of the raw loop", _against(results, "drain.rate", LIMIT), 0.4)
    held = results.ratio(OURS, "held.p99", OURS, "held.without_p99")
    yield _most("claim p99 with a snapshot held open for 3 minutes ≤ 3× that without", held, 3)
    grown = results.ratio(OURS, "grown.rate", OURS, "drain.rate")
    yield _least("drain beside old rows ≥ 0.9 of fresh", grown, 0.9)
    yield _least(
        "bulk enqueue ≥ 0.5 of COPY of the same rows", _against(results, "bulk.rate", SAME_ROWS), 0.5
    )
    single = _against(results, "single.rate", SAME_ROWS)
    yield _least("single enqueue ≥ 0.8 of one statement that writes the same rows", single, 0.8)


def _pickups(results: Results) -> Iterator[GoalResult]:
    yield _most("pickup p50 ≤ 3× the raw LISTEN loop", _against(results, "pickup.p50", LIMIT), 3)
    yield _most("pickup p99 ≤ 5× the raw LISTEN loop", _against(results, "pickup.p99", LIMIT), 5)

    polled = results.median(OURS, "polled.p99")
    met = None if polled is None else polled <= (POLL_SECONDS + 0.02) * 1000
    reached = "" if polled is None else f"{polled:.0f} ms"
    yield GoalResult(f"pickup without hints: p99 ≤ poll interval ({POLL_SECONDS:g} s) + 20 ms", reached, met)


def _costs(results: Results) -> Iterator[GoalResult]:
    two = results.ratio(OURS, "two.worker_cpu", OURS, "drain.worker_cpu")
    yield _most("two processes: worker CPU a task ≤ 1.15× of one", two, 1.15)
    full = results.median(OURS, "two.claims_full")
    yield _least("two processes: claims ≥ 0.9 full", full, 0.9)
    waits = results.median(OURS, "two.lock_waits")
    met = None if waits is None else waits <= LOCK_WAITS
    yield GoalResult(
        "two processes: next to no lock waits", "" if waits is None else f"{waits:.3f} at a time", met
    )
    worker = results.median(OURS, "drain.worker_cpu")
    met = None if worker is None else worker <= WORKER_CPU_SECONDS
    reached = "" if worker is None else f"{worker * 1000:.0f} µs"
    yield GoalResult("worker CPU ≤ 100 µs a task (50 µs wished for)", reached, met)
    yield _below_all(results)
    growth = results.median(OURS, "drain.memory_growth") if results.n >= MANY else None
    yield _most(f"memory flat: peak over {MANY:,} tasks ≤ 1.05× that after a tenth", growth, 1.05)


def _below_all(results: Results) -> GoalResult:
    """Compare worker and server together with every Python peer, whatever its store."""
    goal = "worker + server CPU below every Python peer"
    own = results.cpu(OURS)
    others = {each.name: results.cpu(each.name) for each in results.contestants if each.kind == "python"}
    known = {name: cpu for name, cpu in others.items() if cpu is not None}
    if own is None or not known:
        return GoalResult(goal, "", None)
    least = min(known, key=lambda name: known[name])
    return GoalResult(goal, f"{own:.3f} s of 1,000, {least} {known[least]:.3f} s", own < known[least])


def _on_sqlite(results: Results) -> GoalResult:
    peer = results.best("drain.rate", lambda each: each.kind == "python" and each.store == "sqlite")
    ratio = results.ratio(OURS_ON_SQLITE, "drain.rate", peer) if peer else None
    return _least("on SQLite: drain ahead of every other queue", ratio, 1, peer)


def _is_python_on_postgresql(contestant: Contestant) -> bool:
    return contestant.kind == "python" and contestant.store == "postgresql"


def _against(results: Results, value: str, other: str | None) -> float | None:
    return results.ratio(OURS, value, other) if other else None


def _least(goal: str, ratio: float | None, floor: float, other: str | None = None) -> GoalResult:
    return GoalResult(goal, _reached(ratio, other), None if ratio is None else ratio >= floor)


def _most(goal: str, ratio: float | None, ceiling: float) -> GoalResult:
    return GoalResult(goal, _reached(ratio), None if ratio is None else ratio <= ceiling)


def _reached(ratio: float | None, other: str | None = None) -> str:
    return "" if ratio is None else f"{ratio:.2f}{f' ({other})' if other else ''}"
