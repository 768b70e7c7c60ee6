"""The learned rate of an upstream that answers 429 and shows no limit: halved, growing again, then forgotten."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.limits import gate as gates
from tidegate.limits import rate_learning
from tidegate.limits.admission import GateCheck, take_call_slot
from tidegate.limits.formatting import format_gate
from tidegate.limits.learned_limits import with_learned_rates
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, GateState, LearnedRate, key_gate_name

NOW = 1_800_000_000.0
NO_LIMITS = Limits()
TOO_FAST = CallFailure(Reason.RATE_LIMIT, wait_seconds=2.0)


def busy(per_second: float) -> Gate:
    """A gate of which so many runs a second went well for minutes."""
    gate = Gate(typical_seconds=0.5)
    for second in range(300):
        learned_rate = rate_learning.count_successes(gate.learned_rate, per_second, NOW - 300 + second)  # type: ignore[arg-type]
        gate = replace(gate, learned_rate=learned_rate)
    return gate


def refused(gate: Gate, now: float) -> Gate:
    return gates.apply_failure(gates.gate_at(gate, NO_LIMITS, now), TOO_FAST, NO_LIMITS, now)


def rate(gate: Gate, now: float) -> float | None:
    return rate_learning.per_second(gate.learned_rate, now)


@given(st.floats(0.7, 500))
def test_a_429_halves_the_recent_success_rate(per_second):
    gate = refused(busy(per_second), NOW)
    assert rate(gate, NOW) == pytest.approx(per_second / 2, rel=0.1)
    assert gate.state is GateState.PARKED


def test_it_doubles_in_a_minute_and_is_forgotten_after_ten():
    gate = refused(busy(8), NOW)
    slow = rate(gate, NOW)
    assert rate(gate, NOW + 60) == pytest.approx(2 * slow)
    assert rate(gate, NOW + 600) == pytest.approx(1024 * slow)
    assert rate(gate, NOW + 601) is None


def test_several_429s_at_one_time_and_of_earlier_runs_halve_the_rate_once():
    first = refused(replace(busy(8), typical_seconds=4.0), NOW)
    again = refused(refused(first, NOW + 0.1), NOW + 1.0)
    assert again.learned_rate == first.learned_rate
    late = refused(first, first.until_at + 0.9)
    assert late.learned_rate == first.learned_rate


def test_a_429_at_the_learned_rate_halves_it_again_but_not_below_one_a_minute():
    gate, at, rates = busy(8), NOW, []
    for _ in range(12):
        gate = refused(replace(gate, rate_limited_since_at=None), at)  # some were good in between
        rates.append(rate(gate, at))
        at = gate.until_at + 1.1
    assert all(after < before or after == rate_learning.LEAST_PER_SECOND for before, after in pairwise(rates))
    assert rates[-1] == rate_learning.LEAST_PER_SECOND


def test_a_young_count_is_averaged_over_its_own_age():
    learned_rate = rate_learning.count_successes(LearnedRate(), 3, NOW)
    gate = refused(Gate(learned_rate=learned_rate), NOW + 2.0)
    assert rate(gate, NOW + 2.0) == pytest.approx(0.75, rel=0.1)
    after_a_rest = rate_learning.count_successes(learned_rate, 3, NOW + 3600.0)
    assert after_a_rest.count_started_at == NOW + 3600.0


def test_without_recent_successes_a_429_sets_no_rate():
    assert rate(refused(Gate(), NOW), NOW) is None


def test_old_successes_do_not_set_a_rate():
    gate = Gate(learned_rate=rate_learning.count_successes(LearnedRate(), 8, NOW))
    assert rate(refused(gate, NOW + 3600), NOW + 3600) is None


def test_a_burst_after_an_idle_hour_that_meets_a_429_first_is_not_slowed_to_calls_a_minute():
    first = refused(busy(8), NOW + 3600)
    assert rate(first, NOW + 3600) is None
    at = first.until_at + 1.0
    opened = gates.gate_at(first, NO_LIMITS, at)
    good = gates.apply_success(opened, NO_LIMITS, at, seconds=0.5, successes=31, is_probe=False)
    assert rate(refused(good, at + 0.5), at + 0.5) == pytest.approx(31 / 2, rel=0.1)


def test_one_success_a_minute_sets_no_low_rate():
    gate = Gate()
    for minute in range(60):
        gate = replace(
            gate, learned_rate=rate_learning.count_successes(gate.learned_rate, 1, NOW + 60 * minute)
        )
    at = NOW + 59 * 60 + 30
    first = refused(gate, at)
    assert rate(first, at) == rate_learning.TRICKLE_PER_SECOND / 2
    again = first.until_at + 1.1
    halved = refused(replace(first, rate_limited_since_at=None), again)
    assert rate(halved, again) == rate(first, again) / 2, "the pace itself goes below that"


def test_an_overload_does_not_slow_the_learned_rate():
    gate = gates.apply_failure(busy(8), CallFailure(Reason.OVERLOADED, wait_seconds=1.0), NO_LIMITS, NOW)
    assert rate(gate, NOW) is None


def test_a_declared_limit_sets_the_rate_and_a_daily_one_does_not():
    gate = gates.gate_at(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    minute = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    day = Limits(windows=(Window("requests_per_day", 600, 86_400.0, is_fixed=True),))
    assert with_learned_rates(minute, gate, NOW + 3) is minute
    assert [window.name for window in with_learned_rates(day, gate, NOW + 3).windows] == [
        "requests_per_day",
        "learned_rate",
    ]


def test_a_further_call_of_a_run_is_not_limited_by_the_learned_rate_of_runs():
    row = GateRow(GateKind.UPSTREAM, "u", gate=gates.gate_at(refused(busy(8), NOW), NO_LIMITS, NOW + 3))
    for _ in range(3):
        slot, row = take_call_slot(row, max_wait_seconds=0, now=NOW + 3)
        assert (slot.is_granted, slot.wait_seconds) == (True, 0.0)
    assert rate_learning.LEARNED_RATE not in row.buckets
    assert GateCheck(row, 0, NOW + 3).admit().wait_seconds == 0.0
    assert with_learned_rates(NO_LIMITS, row.gate, NOW + 3).window(rate_learning.LEARNED_RATE) is not None, (
        "runs are slowed"
    )


def test_a_key_that_a_probe_opened_is_not_slowed_by_a_429_a_minute_later():
    held = gates.apply_failure(Gate(), CallFailure(Reason.RATE_LIMIT), NO_LIMITS, NOW)
    opened = gates.apply_success(held, NO_LIMITS, NOW + 1, seconds=0.2, successes=1, is_probe=True)
    row = GateRow(GateKind.UPSTREAM, key_gate_name("u", "a"), gate=refused(opened, NOW + 61))
    slots = []
    for _ in range(3):
        slot, row = take_call_slot(row, max_wait_seconds=0, now=NOW + 64)
        slots.append(slot.is_granted)
    assert slots == [True, True, True]


def test_the_learned_rate_is_shown():
    gate = gates.gate_at(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    assert format_gate(gate, NO_LIMITS, NOW + 3) == "flowing, slowed to 244 a minute since its last 429"
    assert gate.learned_rate != LearnedRate()


def test_a_rate_that_is_not_applied_is_not_shown():
    gate = gates.gate_at(refused(busy(8), NOW), NO_LIMITS, NOW + 3)
    minute = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    assert format_gate(gate, minute, NOW + 3) == "flowing"
    assert format_gate(gate, NO_LIMITS, NOW + 3, of_runs=False) == "flowing"


@pytest.mark.parametrize("names_wait", [True, False], ids=["wait named", "no wait named"])
@pytest.mark.parametrize(
    ("limit", "slots", "latency"), [(30, 4, 0.5), (120, 16, 0.5), (600, 32, 2.0), (1200, 32, 0.05)]
)
def test_an_unknown_limit_is_rarely_exceeded_and_well_used(limit, slots, latency, names_wait):
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
            gate = gates.gate_at(row.gate, row.limits, now)
            if wait is None:
                gate = gates.apply_success(
                    gate, row.limits, now, seconds=latency, successes=1, is_probe=is_probe
                )
            else:
                call_failure = CallFailure(Reason.RATE_LIMIT, wait_seconds=wait if names_wait else None)
                gate = gates.apply_failure(gate, call_failure, row.limits, now)
            row = replace(row, gate=gate)
        gate_check = GateCheck(row, len(under_way), now)
        while len(under_way) < slots and gate_check.is_open:
            admitted = gate_check.admit()
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
        row = gate_check.row
        now += 0.05
    return refused, answered
