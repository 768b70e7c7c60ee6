"""How many workers a pool should have."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.autoscale import PoolScaling, ScalingDecision, SlotLimit, WorkGroup, desired_workers

TEN = PoolScaling(slots_per_worker=10)
QUOTA = SlotLimit("upstream openai", starts_per_second=10.0)


def decide(*groups: WorkGroup, scaling: PoolScaling = TEN) -> ScalingDecision:
    return desired_workers(groups, scaling)


def test_without_work_no_worker_is_asked_for() -> None:
    assert decide() == ScalingDecision(0, 0, 0, 0, "", "0 runnable and 0 running tasks can use 0 slots")


def test_a_backlog_gets_the_slots_that_finish_it_within_the_target() -> None:
    found = decide(WorkGroup(runnable=1_200, run_seconds=5.0))
    assert (found.slots, found.workers, found.bound) == (100, 10, "")
    assert (
        decide(WorkGroup(runnable=1_200, run_seconds=5.0), scaling=replace(TEN, target_seconds=600)).workers
        == 1
    )


def test_few_long_tasks_get_no_more_slots_than_tasks() -> None:
    assert decide(WorkGroup(runnable=3, run_seconds=3_600.0)).slots == 3


def test_when_the_quota_binds_no_more_workers_are_asked_for_and_the_answer_says_so() -> None:
    found = decide(WorkGroup(runnable=100_000, running=20, run_seconds=2.0, limits=(QUOTA,)))
    assert (found.slots, found.workers, found.bound) == (20, 2, "upstream openai")
    assert "more would only wait for the upstream openai" in found.reason


def test_a_slow_rate_still_gets_one_slot() -> None:
    slow = SlotLimit("upstream slow", starts_per_second=1 / 60)
    assert decide(WorkGroup(runnable=50, run_seconds=1.0, limits=(slow,))).slots == 1


def test_functions_of_one_upstream_share_its_limit() -> None:
    at_once = SlotLimit("upstream openai", max_at_once=8)
    group = WorkGroup(runnable=1_000, run_seconds=10.0, limits=(at_once,))
    assert decide(group, group).slots == 8


def test_what_other_pools_run_uses_the_limit_up() -> None:
    at_once = SlotLimit("upstream openai", max_at_once=8)
    other = WorkGroup(runnable=1_000, running=5, run_seconds=10.0, limits=(at_once,), is_own=False)
    found = decide(WorkGroup(runnable=1_000, run_seconds=10.0, limits=(at_once,)), other)
    assert (found.slots, found.runnable, found.running) == (3, 1_000, 0)


def test_least_and_most_bound_the_answer() -> None:
    assert decide(scaling=replace(TEN, min_workers=2)).workers == 2
    found = decide(WorkGroup(runnable=10_000, run_seconds=60.0), scaling=replace(TEN, max_workers=4))
    assert (found.workers, found.bound) == (4, "max_workers")
    assert "max_workers is 4" in found.reason


@pytest.mark.parametrize(("tasks", "workers"), [(0, 0), (1, 1), (100, 1), (101, 2), (1_000, 10)])
def test_a_plain_threshold_asks_for_a_worker_per_hundred_tasks(tasks: int, workers: int) -> None:
    group = WorkGroup(runnable=tasks, run_seconds=0.001)
    assert decide(group, scaling=replace(TEN, backlog_per_worker=100)).workers == workers
    assert decide(replace(group, run_seconds=None)).workers == workers, "the rule while no run time is known"


limits = st.builds(
    SlotLimit,
    st.sampled_from(["upstream a", "upstream b"]),
    st.none() | st.floats(0.01, 1_000),
    st.none() | st.integers(1, 500),
)
groups = st.builds(
    WorkGroup,
    runnable=st.integers(0, 100_000),
    running=st.integers(0, 300),
    run_seconds=st.none() | st.floats(0.001, 3_600),
    limits=st.lists(limits, max_size=2, unique_by=lambda limit: limit.name).map(tuple),
    is_own=st.booleans(),
)
scalings = st.builds(
    PoolScaling,
    slots_per_worker=st.integers(1, 64),
    min_workers=st.integers(0, 3),
    max_workers=st.none() | st.integers(3, 50),
    target_seconds=st.floats(1, 3_600),
    backlog_per_worker=st.none() | st.integers(1, 1_000),
)


@given(st.lists(groups, max_size=5), scalings)
def test_the_answer_is_bounded_and_never_stops_what_runs(
    every: list[WorkGroup], scaling: PoolScaling
) -> None:
    found = desired_workers(every, scaling)
    own = [group for group in every if group.is_own]
    running = sum(group.running for group in own)
    assert found.workers >= scaling.min_workers
    assert scaling.max_workers is None or found.workers <= scaling.max_workers
    assert running <= found.slots <= running + sum(group.runnable for group in own)
    if scaling.max_workers is None:
        assert found.workers * scaling.slots_per_worker >= running, "scaling in takes free workers only"


@given(groups, scalings, st.integers(1, 200), st.floats(0.01, 100))
def test_no_more_slots_than_the_upstream_allows(
    group: WorkGroup, scaling: PoolScaling, at_once: int, rate: float
) -> None:
    limit = SlotLimit("upstream openai", rate, at_once)
    found = desired_workers([replace(group, limits=(limit,), is_own=True)], scaling)
    seconds = 1.0 if group.run_seconds is None else group.run_seconds
    allowed = max(1, min(at_once, math.ceil(rate * seconds)))
    assert found.slots <= max(group.running, allowed)
    if group.runnable > 0 and group.running == 0:
        assert found.slots >= 1, "some worker must run what may run"


@given(groups, scalings, st.integers(1, 1_000))
def test_more_work_never_asks_for_fewer_workers(group: WorkGroup, scaling: PoolScaling, more: int) -> None:
    before = desired_workers([group], scaling).workers
    after = desired_workers([replace(group, runnable=group.runnable + more)], scaling).workers
    assert after >= before


def test_a_worker_whose_slots_grow_counts_for_many_calls_and_for_few_other_tasks() -> None:
    scaling = PoolScaling(slots_per_worker=8, growing_slots_per_worker=200, target_seconds=60.0)
    calls = WorkGroup(runnable=1_000, run_seconds=12.0, slots_grow=True)
    others = WorkGroup(runnable=100, run_seconds=12.0)
    assert desired_workers([calls], scaling).workers == 1
    assert desired_workers([calls, others], scaling).workers == 3
    assert desired_workers([replace(calls, runnable=3_000)], scaling).workers == 3
    by_backlog = replace(scaling, backlog_per_worker=100)
    assert desired_workers([replace(calls, runnable=300)], by_backlog).workers == 3
