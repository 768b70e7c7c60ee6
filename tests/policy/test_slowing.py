"""An upstream that says 429 and shows no limit: slowed at each, faster again by itself, in the end forgotten."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import Reason
from tidegate.domain.upstream import (
    Gate,
    GateKind,
    GateRow,
    GateState,
    Limits,
    Pace,
    Signal,
    Window,
    key_gate,
)
from tidegate.policy import gate as gates
from tidegate.policy import slowing
from tidegate.policy.admission import Door, slot_for_call
from tidegate.policy.gate_words import gate_in_words
from tidegate.policy.learned import paced

NOW = 1_800_000_000.0
NO_LIMITS = Limits()
TOO_FAST = Signal(Reason.RATE_LIMIT, wait_seconds=2.0)


def busy(per_second: float) -> Gate:
    """A gate of which so many runs a second went well for minutes."""
    gate = Gate(typical_seconds=0.5)
    for second in range(300):
        pace = slowing.counted(gate.pace, per_second, NOW - 300 + second)  # type: ignore[arg-type]
        gate = replace(gate, pace=pace)
    return gate


def refused(gate: Gate, now: float) -> Gate:
    return gates.after_failure(gates.as_of(gate, NO_LIMITS, now), TOO_FAST, NO_LIMITS, now)


def rate(gate: Gate, now: float) -> float | None:
    return slowing.per_second(gate.pace, now)


@given(st.floats(0.7, 500))
def test_a_429_halves_what_went_well_lately(per_second):
    gate = refused(busy(per_second), NOW)
    assert rate(gate, NOW) == pytest.approx(per_second / 2, rel=0.1)
    assert gate.state is GateState.PARKED


def test_it_doubles_in_a_minute_and_is_forgotten_after_ten():
    gate = refused(busy(8), NOW)
    slow = rate(gate, NOW)
    assert rate(gate, NOW + 60) == pytest.approx(2 * slow)
    assert rate(gate, NOW + 600) == pytest.approx(1024 * slow)
    assert rate(gate, NOW + 601) is None


def test_several_429s_of_one_moment_and_of_runs_begun_before_halve_once():
    first = refused(replace(busy(8), typical_seconds=4.0), NOW)
    again = refused(refused(first, NOW + 0.1), NOW + 1.0)
    assert again.pace == first.pace
    late = refused(first, first.until_at + 0.9)
    assert late.pace == first.pace


def test_a_429_at_the_pace_halves_it_again_and_never_below_one_a_minute():
    gate, at, rates = busy(8), NOW, []
    for _ in range(12):
        gate = refused(replace(gate, refused_since_at=None), at)  # some were good in between
        rates.append(rate(gate, at))
        at = gate.until_at + 1.1
    assert all(after < before or after == slowing.LEAST_PER_SECOND for before, after in pairwise(rates))
    assert rates[-1] == slowing.LEAST_PER_SECOND


def test_a_young_count_is_reckoned_over_the_time_it_has_had():
    pace = slowing.counted(Pace(), 3, NOW)
    gate = refused(Gate(pace=pace), NOW + 2.0)
    assert rate(gate, NOW + 2.0) == pytest.approx(0.75, rel=0.1)
    after_a_rest = slowing.counted(pace, 3, NOW + 3600.0)
    assert after_a_rest.counting_at == NOW + 3600.0


def test_where_nothing_went_well_there_is_nothing_to_halve():
    assert rate(refused(Gate(), NOW), NOW) is None


def test_what_went_well_long_ago_is_nothing_to_halve():
    gate = Gate(pace=slowing.counted(Pace(), 8, NOW))
    assert rate(refused(gate, NOW + 3600), NOW + 3600) is None


def test_a_burst_after_an_idle_hour_that_meets_a_429_first_is_not_slowed_to_calls_a_minute():
    first = refused(busy(8), NOW + 3600)
    assert rate(first, NOW + 3600) is None
    at = first.until_at + 1.0
    opened = gates.as_of(first, NO_LIMITS, at)
    good = gates.after_success(opened, NO_LIMITS, at, seconds=0.5, goods=31, is_probe=False)
    assert rate(refused(good, at + 0.5), at + 0.5) == pytest.approx(31 / 2, rel=0.1)


def test_one_task_a_minute_says_little_of_what_may_be():
    gate = Gate()
    for minute in range(60):
        gate = replace(gate, pace=slowing.counted(gate.pace, 1, NOW + 60 * minute))
    at = NOW + 59 * 60 + 30
    first = refused(gate, at)
    assert rate(first, at) == slowing.TRICKLE_PER_SECOND / 2
    again = first.until_at + 1.1
    halved = refused(replace(first, refused_since_at=None), again)
    assert rate(halved, again) == rate(first, again) / 2, "the pace itself goes below that"


def test_an_overload_is_no_word_on_the_pace():
    gate = gates.after_failure(busy(8), Signal(Reason.OVERLOADED, wait_seconds=1.0), NO_LIMITS, NOW)
    assert rate(gate, NOW) is None


def test_a_given_limit_is_the_pace_and_a_daily_one_is_none():
    gate = gates.as_of(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    minute = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    day = Limits(windows=(Window("requests_per_day", 600, 86_400.0, fixed=True),))
    assert paced(minute, gate, NOW + 3) is minute
    assert [window.name for window in paced(day, gate, NOW + 3).windows] == [
        "requests_per_day",
        "learned_pace",
    ]


def test_a_further_call_of_a_run_is_not_charged_the_pace_of_runs():
    row = GateRow(GateKind.UPSTREAM, "u", gate=gates.as_of(refused(busy(8), NOW), NO_LIMITS, NOW + 3))
    for _ in range(3):
        slot, row = slot_for_call(row, patience_seconds=0, now=NOW + 3)
        assert (slot.is_granted, slot.wait_seconds) == (True, 0.0)
    assert slowing.NAME not in row.meters
    assert Door(row, 0, NOW + 3).admit().wait_seconds == 0.0
    assert paced(NO_LIMITS, row.gate, NOW + 3).window(slowing.NAME) is not None, "runs are slowed"


def test_a_key_that_a_probe_opened_is_not_slowed_by_a_429_a_minute_later():
    held = gates.after_failure(Gate(), Signal(Reason.RATE_LIMIT), NO_LIMITS, NOW)
    opened = gates.after_success(held, NO_LIMITS, NOW + 1, seconds=0.2, goods=1, is_probe=True)
    row = GateRow(GateKind.UPSTREAM, key_gate("u", "a"), gate=refused(opened, NOW + 61))
    slots = []
    for _ in range(3):
        slot, row = slot_for_call(row, patience_seconds=0, now=NOW + 64)
        slots.append(slot.is_granted)
    assert slots == [True, True, True]


def test_the_pace_is_shown_in_words():
    gate = gates.as_of(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    assert gate_in_words(gate, NO_LIMITS, NOW + 3) == "flowing, slowed to 244 a minute since its last 429"
    assert gate.pace != Pace()


def test_no_words_tell_of_a_pace_that_is_not_applied():
    gate = gates.as_of(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    minute = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    assert gate_in_words(gate, minute, NOW + 3) == "flowing"
    assert gate_in_words(gate, NO_LIMITS, NOW + 3, of_runs=False) == "flowing"


@pytest.mark.parametrize("names_wait", [True, False], ids=["wait named", "no wait named"])
@pytest.mark.parametrize(
    ("limit", "slots", "latency"), [(30, 4, 0.5), (120, 16, 0.5), (600, 32, 2.0), (1200, 32, 0.05)]
)
def test_an_unknown_limit_is_met_seldom_and_used_well(limit, slots, latency, names_wait):
    refused, answered = against_a_bucket(limit, slots, latency, names_wait=names_wait, seconds=600.0)
    assert answered >= 0.8 * min(limit * 10, slots / latency * 600)
    assert refused <= 0.05 * answered + 8 * slots


def against_a_bucket(limit, slots, latency, *, names_wait, seconds):
    """Run tasks against a bucket of a tenth of its limit that shows no headers; return refused, answered."""
    row, now, read_at, numbers = GateRow(GateKind.UPSTREAM, "u"), NOW, NOW, count()
    size = level = max(1.0, limit / 10)
    refused = answered = 0
    under_way: list[tuple[float, int, float | None, bool]] = []
    while now < NOW + seconds:
        while under_way and under_way[0][0] <= now:
            _, _, wait, is_probe = heapq.heappop(under_way)
            gate = gates.as_of(row.gate, row.limits, now)
            if wait is None:
                gate = gates.after_success(gate, row.limits, now, seconds=latency, goods=1, is_probe=is_probe)
            else:
                signal = Signal(Reason.RATE_LIMIT, wait_seconds=wait if names_wait else None)
                gate = gates.after_failure(gate, signal, row.limits, now)
            row = replace(row, gate=gate)
        door = Door(row, len(under_way), now)
        while len(under_way) < slots and door.is_open:
            admitted = door.admit()
            sent_at = now + admitted.wait_seconds
            level, read_at = (
                min(size, level + max(0.0, sent_at - read_at) * limit / 60),
                max(read_at, sent_at),
            )
            if level >= 1:
                level, answered, wait = level - 1, answered + 1, None
            else:
                refused, wait = refused + 1, (1 - level) * 60 / limit
            took = latency if wait is None else 0.02
            heapq.heappush(under_way, (sent_at + took, next(numbers), wait, admitted.is_probe))
        row = door.row
        now += 0.05
    return refused, answered
