"""How many runs in flight are learned for an upstream that is full, against models of such upstreams."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tidegate.limits.in_flight_learning import (
    FIRST_RUNS,
    after_overload,
    count_runs,
    free_in_flight,
    limits_in_flight,
)
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, InFlightLearning

TICK = 0.05
Latency = Callable[[int, float], float]
"""Seconds of a run that starts now, given the runs in flight and the time."""


@dataclass(frozen=True)
class Measured:
    """The second half of a model's time."""

    per_second: float
    in_flight: float
    learned: InFlightLearning


def simulate(
    latency: Latency,
    *,
    seconds: float = 600.0,
    slots: int = 24,
    most_slots: int = 600,
    demand: int = 600,
    paced_per_second: float | None = None,
    learns: bool = True,
    seed: int = 1,
) -> Measured:
    """Run a queue that is never empty; the slots grow as those of workers do."""
    rng, learned, flying = random.Random(seed), InFlightLearning(), list[tuple[float, float]]()
    now, next_slot_at, reported_at, ended = 0.0, 0.0, 0.0, list[float]()
    completed, held, ticks = 0, 0, 0
    while now < seconds:
        target = learned.target if learned.target is not None else most_slots
        while len(flying) < min(slots, target, demand) and next_slot_at <= now:
            if paced_per_second is not None:
                next_slot_at = max(next_slot_at, now - 0.5) + 1 / paced_per_second
            takes = latency(len(flying) + 1, now) * rng.lognormvariate(0, 0.2)
            heapq.heappush(flying, (now + takes, takes))
        was_full, before = len(flying) >= slots, len(flying)
        now += TICK
        while flying and flying[0][0] <= now:
            ended.append(heapq.heappop(flying)[1])
        if was_full:
            grown = slots // 2 if paced_per_second is not None else min(before - len(flying), slots // 2)
            slots = min(most_slots, slots + grown)
        if now > seconds / 2:
            completed, held, ticks = completed + before - len(flying), held + before, ticks + 1
        if ended and now - reported_at >= 0.5:
            if learns:
                learned = count_runs(
                    learned,
                    len(ended),
                    sum(ended) / len(ended),
                    now,
                    allowed_per_second=paced_per_second or float("inf"),
                )
            ended, reported_at = [], now
    return Measured(completed / ticks / TICK, held / ticks, learned)


def server(places: int, seconds: float) -> Latency:
    """Return a server with this many places: more runs wait for a place."""
    return lambda in_flight, now: seconds * max(1.0, in_flight / places)


def batching(in_flight: int, now: float) -> float:
    """Take longer for each run of a batch, and queue what is above 64."""
    return (1 + min(in_flight, 64) / 32) * max(1.0, in_flight / 64)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("latency", "enough", "seconds"),
    [
        (server(64, 1.0), 64, 600.0),
        (server(20, 3.0), 20, 900.0),
        (batching, 64, 600.0),
        (server(200, 2.0), 200, 600.0),
    ],
    ids=["64 places", "20 slow places", "batching", "200 places"],
)
def test_a_full_server_gets_enough_runs_and_not_many_more(
    latency: Latency, enough: int, seconds: float, seed: int
) -> None:
    best = simulate(latency, learns=False, slots=enough, most_slots=enough, seed=seed)
    found = simulate(latency, seconds=seconds, seed=seed)
    assert found.per_second >= 0.93 * best.per_second
    assert found.in_flight <= 1.5 * enough


def test_without_learning_all_slots_would_be_in_flight() -> None:
    assert simulate(server(64, 1.0), learns=False).in_flight > 500


def test_a_server_that_cannot_keep_up_with_its_declared_rate_is_not_flooded() -> None:
    found = simulate(server(20, 3.0), paced_per_second=10)
    assert found.in_flight <= 1.5 * 20
    assert found.per_second >= 0.9 * 20 / 3.06


def test_an_upstream_whose_rate_limit_binds_is_never_held_back() -> None:
    found = simulate(lambda in_flight, now: 3.0 if now < 100 else 7.5, paced_per_second=10)
    assert found.learned.target is None
    assert found.per_second >= 0.99 * 10


def test_tasks_that_take_longer_now_and_then_are_not_taken_for_a_full_server() -> None:
    def changing(in_flight: int, now: float) -> float:
        return 1.0 if int(now / 60) % 2 == 0 else 10.0

    free = simulate(changing, demand=100, learns=False)
    learned = simulate(changing, demand=100)
    assert learned.per_second >= 0.9 * free.per_second
    paced_free = simulate(changing, paced_per_second=10, learns=False)
    assert simulate(changing, paced_per_second=10).per_second >= 0.95 * paced_free.per_second


def test_short_runs_are_not_limited() -> None:
    assert simulate(lambda in_flight, now: 0.02, seconds=60).learned.target is None


def test_few_work_is_not_limited() -> None:
    found = simulate(server(64, 1.0), demand=30)
    assert found.in_flight == pytest.approx(30, abs=2)


def test_an_overload_lowers_the_number_at_once() -> None:
    learned = replace(InFlightLearning(), target=60.0, seconds=1.0)
    assert after_overload(learned, 100.0).target == 40.0
    assert after_overload(InFlightLearning(), 100.0) == InFlightLearning()


def test_the_number_counts_together_with_the_declared_limit() -> None:
    gate = Gate(in_flight=InFlightLearning(target=10.4))
    assert limits_in_flight(gate, Limits())
    assert free_in_flight(gate, Limits(), 7) == 3
    assert free_in_flight(gate, Limits(max_in_flight=8), 7) == 1
    assert free_in_flight(Gate(), Limits(), 7) is None


def test_nothing_is_learned_from_the_first_runs_alone() -> None:
    learned = count_runs(InFlightLearning(), FIRST_RUNS, 1.0, 100.0)
    assert learned.target is None
