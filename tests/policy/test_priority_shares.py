"""Shares between priorities: urgent first, none starves, no slot is wasted."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.spec import Priority
from tidegate.policy.order import LIFT_SECONDS, PENALTY_SECONDS, Portion, Shares, apportion

INTERACTIVE, NORMAL, BULK = Priority


def finder(**waiting: int):
    """Return how `apportion` asks for ready tasks, given their numbers by priority."""
    numbers = {Priority[name]: number for name, number in waiting.items()}
    return lambda priority, at_most: min(numbers.get(priority, 0), at_most)


@pytest.mark.parametrize(
    ("slots", "reserved", "waiting", "portions"),
    [
        (5, {}, {"INTERACTIVE": 3, "NORMAL": 9}, [(INTERACTIVE, 3), (NORMAL, 2)]),
        (5, {}, {"BULK": 9}, [(BULK, 5)]),
        (5, {BULK: 1}, {"INTERACTIVE": 9, "BULK": 9}, [(BULK, 1), (INTERACTIVE, 4)]),
        (5, {BULK: 1}, {"INTERACTIVE": 9}, [(INTERACTIVE, 5)]),
        (3, {NORMAL: 2, BULK: 2}, {"NORMAL": 9, "BULK": 9}, [(NORMAL, 2), (BULK, 1)]),
        (5, {NORMAL: 1}, {"NORMAL": 3}, [(NORMAL, 1), (NORMAL, 2)]),
        (5, {}, {}, []),
        (1, {BULK: 3}, {"INTERACTIVE": 1, "BULK": 1}, [(BULK, 1)]),
    ],
)
def test_slots_go_to_reserved_shares_and_then_to_the_most_urgent(slots, reserved, waiting, portions):
    assert apportion(slots, reserved, finder(**waiting)) == [Portion(*portion) for portion in portions]


COUNTS = st.dictionaries(st.sampled_from(Priority), st.integers(0, 20))


@given(slots=st.integers(1, 30), reserved=COUNTS, waiting=COUNTS)
def test_no_slot_is_wasted_and_none_is_given_twice(slots, reserved, waiting):
    portions = apportion(slots, reserved, lambda priority, at_most: min(waiting.get(priority, 0), at_most))
    taken = Counter()
    for priority, tasks in portions:
        assert tasks > 0
        taken[priority] += tasks
    assert sum(taken.values()) == min(slots, sum(waiting.values()))
    assert all(taken[priority] <= waiting.get(priority, 0) for priority in taken)


def test_priorities_that_are_not_needed_are_not_counted():
    asked = []

    def found(priority, at_most):
        asked.append(priority)
        return at_most

    apportion(4, {}, found)
    assert asked == [INTERACTIVE]


@pytest.mark.parametrize("slots", [1, 3, 10, 100])
def test_under_endless_urgent_work_each_lower_priority_keeps_its_tenth(slots):
    shares, claimed = Shares(), Counter()
    for _ in range(1000):
        got = Counter()
        for priority, tasks in apportion(slots, shares.reserved(), lambda _, at_most: at_most):
            got[priority] += tasks
        shares = shares.after(got, slots)
        claimed += got
    total = claimed.total()
    assert claimed[NORMAL] / total == pytest.approx(0.1, abs=0.01)
    assert claimed[BULK] / total == pytest.approx(0.1, abs=0.01)


def test_with_one_slot_bulk_starts_within_eleven_claims():
    shares = Shares()
    for claims in range(1, 20):
        [(priority, _)] = apportion(1, shares.reserved(), finder(INTERACTIVE=99, BULK=1))
        if priority is BULK:
            break
        shares = shares.after({priority: 1}, 1)
    assert priority is BULK
    assert claims <= 11


def test_a_priority_without_tasks_is_owed_nothing():
    shares = Shares()
    for _ in range(10_000):
        shares = shares.after({INTERACTIVE: 10}, 10)
    assert shares.reserved() == {NORMAL: 1, BULK: 1}


def test_after_a_claim_that_took_all_tasks_nothing_is_owed():
    shares = Shares(owed={BULK: 3.0})
    assert shares.after({INTERACTIVE: 1}, 2).reserved() == {}


def test_shares_can_be_set():
    shares = Shares({BULK: 0.5})
    claimed = Counter()
    for _ in range(100):
        [(priority, _)] = apportion(1, shares.reserved(), finder(INTERACTIVE=99, NORMAL=99, BULK=99))
        shares = shares.after({priority: 1}, 1)
        claimed[priority] += 1
    assert claimed == {INTERACTIVE: 51, BULK: 49}  # the first claim finds no debt yet


def test_a_released_run_is_moved_forward_by_more_than_one_tasks_penalties():
    assert LIFT_SECONDS > 3 * PENALTY_SECONDS > 0
