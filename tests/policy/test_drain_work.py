"""What the drain estimates are made from: work that is not blocked, its limits, its run times and its arrivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.domain.spec import Window
from tidegate.limits.pauses import NO_PAUSES, Pause, PauseKind, Pauses
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, GateState, ParkedBy, TokenBucket
from tidegate.policy.backlog import ChannelCount
from tidegate.policy.drain import DrainKind, DrainWorker, QueueHistory
from tidegate.policy.drain_estimate import estimate_drains
from tidegate.policy.drain_work import DrainCounts, RunTimes, build_drain_work

NOW = 1_800_000_000.0
PER_MINUTE = Window("requests_per_minute", 30, 60.0)
NAME = ("q", "u", "f")
COUNTS = DrainCounts(
    ready=[ChannelCount("q", "u", "f", 60, NOW - 9.0)],
    running={},
    run_times={},
    enqueued={},
    gate_rows=[],
    in_flight={},
    pauses=NO_PAUSES,
    workers=[],
    now=NOW,
)


def drain(counts: DrainCounts, queue: str = "q"):
    return estimate_drains(build_drain_work(counts), {queue: QueueHistory()})[queue]


def upstream(*windows: Window, used: float = 0.0, gate: Gate | None = None, **limits: int) -> GateRow:
    buckets = {window.name: TokenBucket(next_at=NOW + used) for window in windows} if used else {}
    return GateRow(GateKind.UPSTREAM, "u", Limits(windows, **limits), gate or Gate(), buckets)


@pytest.mark.parametrize(
    ("window", "seconds"), [(PER_MINUTE, 118.0), (Window("requests_per_hour", 1, 3_600.0), 59 * 3_600.0)]
)
def test_the_last_task_under_a_rate_limit_starts_at_its_slot(window, seconds):
    found = drain(replace(COUNTS, gate_rows=[upstream(window)]))
    assert (found.constraint, found.seconds) == ("requests", pytest.approx(seconds))


def test_the_limit_of_a_function_counts_too():
    row = GateRow(GateKind.FUNCTION, "f", Limits((Window("rate_limit", 60, 60.0),)))
    found = drain(replace(COUNTS, gate_rows=[row]))
    assert found.seconds == pytest.approx(59.0, abs=1.0)
    assert found.text == "the rate limit of f lets 60 per minute start"


def test_queues_behind_one_limit_share_it():
    ready = [*COUNTS.ready, ChannelCount("other", "u", "f", 40, NOW)]
    counts = replace(COUNTS, ready=ready, gate_rows=[upstream(PER_MINUTE)])
    assert drain(counts).seconds == drain(counts, "other").seconds == pytest.approx(198.0)


PARKED = Gate(GateState.PARKED, ParkedBy.SERVER, reason="rate_limit", until_at=NOW + 12.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"gate_rows": [upstream(PER_MINUTE, gate=PARKED)]},
        {"pauses": Pauses([Pause(PauseKind.QUEUE, "q", NOW, "me", "")])},
        {"pauses": Pauses([Pause(PauseKind.FUNCTION, "f", NOW, "me", "")])},
        {"unserved": lambda queue, function: "nobody"},
    ],
    ids=["gate", "queue paused", "function paused", "no worker"],
)
def test_blocked_tasks_and_their_arrivals_are_left_out(changes):
    enqueued = {NAME: dict.fromkeys(range(int(NOW // 60) - 10, int(NOW // 60)), 60)}
    work = build_drain_work(replace(COUNTS, enqueued=enqueued, **changes))
    assert work.channels == []


def test_run_times_runs_per_task_and_arrivals_are_those_of_the_last_minutes():
    minute = int(NOW // 60)
    counts = replace(
        COUNTS,
        run_times={NAME: RunTimes(seconds=30.0, runs=15, ends=10)},
        enqueued={NAME: dict.fromkeys(range(minute - 10, minute), 6) | {minute: 5_000, minute - 3: 900}},
        workers=[DrainWorker(("*",), 4)],
    )
    (channel,) = build_drain_work(counts).channels
    assert (channel.run_seconds, channel.runs_per_task) == (2.0, 1.5)
    assert channel.arrivals == pytest.approx(0.1)
    assert drain(counts).seconds == pytest.approx(60 * 3.0 / (4 - 0.3), rel=0.02)


def test_the_learned_run_time_of_the_upstream_serves_while_no_run_has_ended():
    learned = Gate()
    learned = replace(
        learned, typical_seconds=3.0, learned_rate=replace(learned.learned_rate, counted_at=NOW - 5.0)
    )
    counts = replace(COUNTS, gate_rows=[upstream(gate=learned)], workers=[DrainWorker(("q",), 6)])
    found = drain(counts)
    assert (found.kind, found.seconds) == (DrainKind.SECONDS, pytest.approx(30.0))


def test_ready_tasks_are_counted_by_priority():
    ready = [
        ChannelCount("q", "", "f", 10, NOW, 0),
        ChannelCount("other", "", "f", 1_000, NOW, 2),
    ]
    times = {("q", "", "f"): RunTimes(10.0, 10, 10), ("other", "", "f"): RunTimes(10.0, 10, 10)}
    counts = replace(COUNTS, ready=ready, run_times=times, workers=[DrainWorker(("*",), 1)])
    assert drain(counts).seconds == pytest.approx(10.0)
    assert drain(counts, "other").seconds == pytest.approx(1_010.0)
