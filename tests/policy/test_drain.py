"""Estimates when queues clear: what decides, what is left out, and how near it is to simulated queues."""

from __future__ import annotations

import heapq
import math
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.policy.drain import (
    Drain,
    DrainChannel,
    DrainKind,
    DrainLimit,
    DrainWork,
    DrainWorker,
    QueueHistory,
)
from tidegate.policy.drain_constraints import CONSTRAINTS
from tidegate.policy.drain_estimate import estimate_drains, steady_rate

NOW = 1_000.0
NO_HISTORY = QueueHistory()


def drain(
    *channels: DrainChannel,
    queue: str = "q",
    slots: int = 0,
    limits: tuple[DrainLimit, ...] = (),
    workers: tuple[DrainWorker, ...] | None = None,
    history: QueueHistory = NO_HISTORY,
) -> Drain:
    """Return the estimate of a queue, served by one worker unless `workers` are given."""
    if workers is None:
        workers = (DrainWorker(("*",), slots),) if slots else ()
    return estimate_drains(DrainWork(channels, limits, workers, NOW), {queue: history})[queue]


def channel(runnable: int, seconds: float | None = None, **changes: object) -> DrainChannel:
    return replace(DrainChannel("q", runnable=runnable, run_seconds=seconds), **changes)


# --- one constraint --------------------------------------------------------------------------------------


def test_a_hundred_tasks_of_two_seconds_in_four_slots_take_fifty_seconds():
    found = drain(channel(100, 2.0), slots=4)
    assert (found.kind, found.seconds, found.constraint) == (DrainKind.SECONDS, pytest.approx(50.0), "slots")
    assert found.text == "4 slots for q, a task takes 2 s"


def test_the_last_round_of_long_tasks_counts_as_a_whole():
    assert drain(channel(5, 60.0), slots=4).seconds == pytest.approx(120.0)


def test_a_rate_limit_that_is_slower_than_the_slots_decides():
    limit = DrainLimit("upstream u", upstream="u", starts_per_second=0.5)
    found = drain(channel(60, 1.0, upstream="u"), slots=10, limits=(limit,))
    assert (found.constraint, found.seconds) == ("requests", pytest.approx(121.0))
    assert found.text == "upstream u lets 30 per minute start"


def test_calls_at_once_decide_when_they_are_fewer_than_the_slots():
    limit = DrainLimit("upstream u", upstream="u", max_at_once=2)
    found = drain(channel(60, 3.0, upstream="u"), slots=10, limits=(limit,))
    assert (found.constraint, found.seconds) == ("in_flight", pytest.approx(90.0))
    assert found.text == "upstream u allows 2 calls at once, a task takes 3 s"


def test_each_task_counts_with_all_its_runs():
    found = drain(channel(10, 2.0, runs_per_task=1.5), slots=1)
    assert found.seconds == pytest.approx(30.0)


def test_queues_share_a_limit_and_slots_with_work_that_is_as_urgent():
    other = DrainChannel("other", "u", "f", 1, 90, run_seconds=1.0)
    limit = DrainLimit("upstream u", upstream="u", starts_per_second=1.0)
    mine = channel(10, 1.0, upstream="u")
    assert drain(mine, other, slots=1_000, limits=(limit,)).seconds == pytest.approx(101.0)
    found = drain(mine, other, slots=10)
    assert (found.seconds, found.text) == (
        pytest.approx(10.0),
        "10 slots for 2 queues, a task takes 1 s",
    )


def test_less_urgent_work_delays_nobody():
    bulk = DrainChannel("other", priority=2, runnable=10_000, run_seconds=10.0)
    assert drain(channel(10, 1.0), bulk, slots=1).seconds == pytest.approx(10.0)
    assert drain(channel(10, 1.0), bulk, queue="other", slots=1).seconds == pytest.approx(100_010.0)


def test_a_worker_that_serves_other_queues_only_gives_no_slots():
    workers = (DrainWorker(("q",), 2), DrainWorker(("other",), 50))
    other = DrainChannel("other", runnable=10_000, run_seconds=10.0)
    assert drain(channel(10, 1.0), other, workers=workers).seconds == pytest.approx(5.0)


# --- arrivals --------------------------------------------------------------------------------------------


def test_new_tasks_make_the_queue_clear_later():
    found = drain(channel(100, 2.0, arrivals=1.0), slots=4)
    assert found.seconds == pytest.approx(100.0)


def test_a_queue_that_grows_never_drains_and_is_short_by_the_difference():
    found = drain(channel(100, 2.0, arrivals=2.2), slots=4)
    assert found == Drain(
        DrainKind.NEVER, None, "slots", "4 slots for q, a task takes 2 s", pytest.approx(12.0)
    )
    assert found.describe() == "will not drain, short by 12 per minute: 4 slots for q, a task takes 2 s"
    assert str(found) == "never"


def test_a_batch_is_no_rate_of_arrivals():
    assert steady_rate([0, 0, 5_000, 0, 0, 0, 0, 0, 0, 0]) == 0.0
    assert steady_rate([0, 0, 5_000, 6_000, 0, 0, 0, 0, 0, 0]) == 0.0
    assert steady_rate([60] * 10) == pytest.approx(1.0)
    assert steady_rate([60] * 8 + [9_000, 60]) == pytest.approx(1.0)
    assert steady_rate([]) == steady_rate([60, 60]) == 0.0


# --- history, and what is left out -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (QueueHistory(), DrainKind.UNKNOWN),
        (QueueHistory(0, 600.0), DrainKind.NEVER),
        (QueueHistory(1_200, 600.0), 50.0),
        (QueueHistory(120, 60.0), 50.0),
        (QueueHistory(600, 600.0, done_last_minute=120), 50.0),
    ],
)
def test_without_slots_or_run_times_the_finished_tasks_decide(history, expected):
    found = drain(channel(100), history=history)
    assert found.kind is expected or found.seconds == pytest.approx(expected)


def test_what_a_busy_queue_finished_decides_if_it_is_far_less_than_the_slots_allow():
    waited = channel(100, 0.01, oldest_at=NOW - 90.0)
    history = QueueHistory(600, 600.0, done_last_minute=60)
    found = drain(waited, slots=8, history=history)
    assert (found.constraint, found.seconds) == ("completions", pytest.approx(100.0))
    assert found.text == "60 per minute finished lately"
    fresh = replace(waited, oldest_at=NOW - 5.0)
    assert drain(fresh, slots=8, history=history).constraint == "slots"


def test_an_empty_queue_drains_now_and_a_blocked_one_names_what_blocks_it():
    assert drain() == Drain(DrainKind.SECONDS, 0.0)
    history = QueueHistory(left_out=("9 tasks blocked: upstream u: gate: parked",), blocked_by="gate")
    found = drain(history=history)
    assert (found.kind, found.seconds, found.constraint) == (DrainKind.BLOCKED, None, "gate")
    assert found.describe() == "drain blocked: 9 tasks blocked: upstream u: gate: parked"
    some = drain(channel(4, 1.0), slots=4, history=history)
    assert (some.seconds, some.left_out) == (pytest.approx(1.0), history.left_out)


def test_every_estimate_says_what_decides_in_one_sentence():
    assert drain(channel(100, 2.0), slots=4).describe() == "drains in 50 s: 4 slots for q, a task takes 2 s"
    assert drain(channel(1)).describe() == "drain unknown: no task of it has finished yet"
    stuck = drain(channel(1), history=QueueHistory(0, 600.0))
    assert stuck.describe() == "will not drain: none finished in the last ten minutes"


# --- properties ------------------------------------------------------------------------------------------

CHANNELS = st.lists(
    st.builds(
        DrainChannel,
        queue=st.sampled_from("qr"),
        upstream=st.sampled_from(["", "u"]),
        priority=st.integers(0, 2),
        runnable=st.integers(0, 10_000),
        running=st.integers(0, 50),
        oldest_at=st.one_of(st.none(), st.floats(0, NOW)),
        run_seconds=st.one_of(st.none(), st.floats(0, 1_000)),
        runs_per_task=st.floats(1, 10),
        arrivals=st.floats(0, 50),
    ),
    max_size=5,
)
LIMITS = st.lists(
    st.builds(
        DrainLimit,
        name=st.just("upstream u"),
        upstream=st.just("u"),
        starts_per_second=st.one_of(st.none(), st.floats(0.001, 100)),
        max_at_once=st.one_of(st.none(), st.integers(1, 50)),
    ),
    max_size=1,
)
WORKERS = st.lists(
    st.builds(DrainWorker, queues=st.sampled_from([("q",), ("*",), ("q", "r")]), slots=st.integers(0, 64)),
    max_size=3,
)
HISTORIES = st.builds(
    QueueHistory,
    done=st.integers(0, 10_000),
    seconds=st.sampled_from([0.0, 1.0, 60.0, 600.0]),
    done_last_minute=st.integers(0, 1_000),
)


@settings(deadline=None)
@given(channels=CHANNELS, limits=LIMITS, workers=WORKERS, history=HISTORIES)
def test_an_estimate_is_never_negative_nor_nan_and_a_shortage_is_positive(channels, limits, workers, history):
    work = DrainWork(channels, limits, workers, NOW)
    for found in estimate_drains(work, {"q": history, "r": history}).values():
        assert (found.seconds is not None) == (found.kind is DrainKind.SECONDS)
        assert found.seconds is None or 0 <= found.seconds < math.inf
        assert found.short_per_minute is None or found.short_per_minute >= 0
        assert found.describe()


@settings(deadline=None)
@given(channels=CHANNELS, limits=LIMITS, slots=st.integers(1, 50), more=st.integers(1, 50))
def test_more_slots_never_make_a_queue_slower(channels, limits, slots, more):
    def seconds(number: int) -> float:
        work = DrainWork(channels, limits, (DrainWorker(("*",), number),), NOW)
        found = estimate_drains(work, {"q": NO_HISTORY})["q"]
        return math.inf if found.seconds is None else found.seconds

    longest = max((each.slot_seconds for each in channels), default=0.0)
    assert seconds(slots + more) <= seconds(slots) * (1 + 1e-9) + longest


@settings(deadline=None)
@given(channels=CHANNELS, limits=LIMITS, workers=WORKERS)
def test_the_named_constraint_is_the_slowest_one(channels, limits, workers):
    work = DrainWork(channels, limits, workers, NOW)
    found = estimate_drains(work, {"q": NO_HISTORY})["q"]
    own = [each for each in channels if each.queue == "q" and each.runnable]
    if found.kind is not DrainKind.SECONDS or not own:
        return
    ahead = [each for each in channels if each.priority <= max(mine.priority for mine in own)]
    bounds = [
        bound
        for constraint in CONSTRAINTS
        for bound in constraint(work, ahead)
        if any(each.queue == "q" and each.runnable for each in bound.channels)
    ]
    assert found.seconds == max(bound.seconds for bound in bounds)


def test_a_thousand_queues_are_estimated_within_a_scrape():
    names = [f"q{number}" for number in range(1_000)]
    channels = [DrainChannel(name, f"u{len(name)}", "f", 1, 10, 1, 0.0, 1.0) for name in names]
    limits = [DrainLimit(f"u{number}", f"u{number}", starts_per_second=1.0) for number in range(20)]
    workers = [DrainWorker(("*",), 8)] * 50 + [DrainWorker((name,), 1) for name in names[:50]]
    work = DrainWork(channels, limits, workers, NOW)
    began = time.process_time()
    found = estimate_drains(work, dict.fromkeys(names, NO_HISTORY))
    assert time.process_time() - began < 1.0, "usually 40 ms"
    assert {each.kind for each in found.values()} == {DrainKind.SECONDS}


# --- simulated queues ------------------------------------------------------------------------------------


def simulate(
    rng: random.Random,
    *,
    tasks: int,
    slots: int,
    seconds: float,
    starts_per_second: float = math.inf,
    arrivals: float = 0.0,
) -> float:
    """Return when no task waits any more, and without arrivals when the last one is done.

    Tasks take between half and one and a half of `seconds`.
    """
    now, ready, next_start = 0.0, tasks, 0.0
    ends: list[float] = []
    next_arrival = rng.expovariate(arrivals) if arrivals else math.inf
    while ready or (ends and not arrivals):
        if ready and len(ends) < slots and now >= next_start:
            ready -= 1
            heapq.heappush(ends, now + seconds * rng.uniform(0.5, 1.5))
            next_start = now + (0.0 if math.isinf(starts_per_second) else 1.0 / starts_per_second)
            continue
        waits = [next_arrival, *ends[:1]]
        if ready and len(ends) < slots:
            waits.append(next_start)
        now = min(waits)
        if ends and ends[0] <= now:
            heapq.heappop(ends)
        elif next_arrival <= now:
            ready += 1
            next_arrival = now + rng.expovariate(arrivals)
    return now


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("tasks", "slots", "seconds", "rate", "arrivals", "binding"),
    [
        (400, 4, 2.0, math.inf, 0.0, "slots"),
        (50, 16, 30.0, math.inf, 0.0, "slots"),
        (600, 50, 3.0, 2.0, 0.0, "requests"),
        (400, 10, 2.0, math.inf, 2.5, "slots"),
        (400, 50, 1.0, 4.0, 2.0, "requests"),
    ],
)
def test_an_estimate_is_within_a_fifth_of_the_real_drain(
    seed, tasks, slots, seconds, rate, arrivals, binding
):
    limit = DrainLimit("upstream u", "u", starts_per_second=None if math.isinf(rate) else rate)
    found = drain(channel(tasks, seconds, upstream="u", arrivals=arrivals), slots=slots, limits=(limit,))
    real = simulate(
        random.Random(seed),
        tasks=tasks,
        slots=slots,
        seconds=seconds,
        starts_per_second=rate,
        arrivals=arrivals,
    )
    assert found.constraint == binding
    assert found.seconds == pytest.approx(real, rel=0.2)
