"""Limits learned from headers: when an exhausted one opens, how it refills, and the rate when little is left."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from itertools import count, permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stand_ins import CASES, header_list
from stand_ins import NOW as CASES_NOW
from tidegate.domain.spec import Window
from tidegate.domain.states import State
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits import gate as gates
from tidegate.limits.admission import Admission, GateCheck
from tidegate.limits.blocks import find_block
from tidegate.limits.call_slots import take_call_slot
from tidegate.limits.formatting import format_block
from tidegate.limits.learned_limits import (
    MAX_RESET_SECONDS,
    exhausted_limit,
    is_worth_sharing,
    merge_observed,
    next_call_at,
    windows_above_observed,
    with_learned_rates,
)
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, LearnedLimit, ObservedLimit, ParkedBy
from tidegate.policy.explain import WaitingTask, explain_wait
from tidegate.policy.live_workers import LiveWorker, LiveWorkers
from tidegate.providers.limits import seen_limits
from tidegate.providers.packs import pack_for

NOW = 1_800_000_000.0
NO_LIMITS = Limits()


def requests(limit=None, remaining=None, reset=None, window=None) -> HeaderLimit:
    return HeaderLimit(Dimension.REQUESTS, limit, remaining, reset, window)


def after(*seen: HeaderLimit, now: float = NOW, needs: float = 1.0) -> tuple[LearnedLimit, ...]:
    known: tuple[LearnedLimit, ...] = ()
    for each in seen:
        known = merge_observed(known, [ObservedLimit(each, needs=needs)], now)
    return known


def a_row(learned: tuple[LearnedLimit, ...], limits: Limits = NO_LIMITS) -> GateRow:
    return GateRow(GateKind.UPSTREAM, "u", limits, Gate(learned_limits=learned))


# --- spent -----------------------------------------------------------------------------------------------


@given(reset=st.floats(0.001, MAX_RESET_SECONDS), jitter=st.floats(0, 0.999), ago=st.floats(0, 100))
def test_an_exhausted_limit_opens_shortly_after_its_reset_and_within_a_day(reset, jitter, ago):
    observed = ObservedLimit(requests(remaining=0, reset=reset), ago, 0.0, 1.0, jitter)
    at = next_call_at(merge_observed((), [observed], NOW), NOW)
    floor = NOW + min(reset, 86_400.0)
    assert floor <= at <= floor + min(5.0, 0.1 * reset)


@pytest.mark.parametrize(
    "seen",
    [
        requests(),
        requests(limit=10),
        requests(limit=10, remaining=1, reset=60.0),
        requests(remaining=0),
        requests(remaining=0, reset=0.0),
        requests(remaining=0, reset=4_294_967_296.0),
        requests(remaining=0, reset=math.inf),
    ],
    ids=str,
)
def test_headers_with_quota_left_or_an_implausible_reset_do_not_close_the_gate(seen):
    assert exhausted_limit(after(seen), NOW) is None


def test_too_few_tokens_for_one_more_call_count_as_none():
    seen = HeaderLimit(Dimension.TOKENS, remaining=900.0, reset_seconds=30.0)
    assert exhausted_limit(after(seen, needs=899), NOW) is None
    assert exhausted_limit(after(seen, needs=1000), NOW).opens_at == NOW + 30.0


def test_a_call_larger_than_the_whole_limit_waits_until_it_is_full():
    seen = HeaderLimit(Dimension.TOKENS, limit=1000.0, remaining=1000.0, reset_seconds=0.0)
    assert exhausted_limit(after(seen, needs=5000), NOW) is None


@pytest.mark.parametrize(
    ("limit", "window"), [(10_000.0, 86_400.0), (500.0, 60.0), (60.0, 60.0), (14_400.0, 86_400.0)]
)
def test_with_an_even_refill_a_call_waits_only_for_the_amount_it_needs(limit, window):
    partly = requests(limit, limit - 1, window / limit)
    empty = requests(limit, 0, window)
    (learned,) = after(partly, empty)
    assert (learned.window_seconds, learned.refills_evenly) == (window, True)
    assert learned.opens_at == pytest.approx(NOW + window / limit)


def test_a_first_response_with_an_empty_limit_that_is_full_in_a_day_is_read_as_an_even_refill():
    (learned,) = after(requests(10_000.0, 0, 86_400.0))
    assert learned.opens_at == pytest.approx(NOW + 8.64)


def test_a_call_waits_for_the_end_of_a_fixed_window():
    (learned,) = after(requests(100.0, 90, 40.0), requests(100.0, 0, 35.0))
    assert not learned.refills_evenly
    assert learned.opens_at == NOW + 35.0


def test_a_named_window_that_does_not_refill_evenly_is_fixed():
    (learned,) = after(requests(60.0, 50, 55.0, 60.0), requests(60.0, 0, 50.0, 60.0))
    assert (learned.window_seconds, learned.refills_evenly) == (60.0, False)
    assert learned.opens_at == NOW + 50.0


def test_responses_in_any_order_leave_the_state_of_the_latest_call():
    observed = [
        ObservedLimit(requests(10, 2, 48.0), sent_seconds_ago=3.0),
        ObservedLimit(requests(10, 0, 60.0), sent_seconds_ago=2.0),
        ObservedLimit(requests(10, 1, 55.0), sent_seconds_ago=1.0),
    ]
    for order in permutations(observed):
        known: tuple[LearnedLimit, ...] = ()
        for each in order:
            known = merge_observed(known, [each], NOW)
        assert (known[0].remaining, known[0].opens_at, known[0].sent_at) == (1, None, NOW - 1.0)


def test_a_response_without_a_reset_neither_closes_nor_opens_the_gate():
    (learned,) = after(requests(10, 5, 50.0), requests(10, 0, 40.0), requests(10, 0))
    assert learned.opens_at == NOW + 40.0


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.get("status") == 429 and "headers" in c], ids=lambda case: case["id"]
)
def test_headers_of_every_case_with_nothing_left_close_the_gate_no_longer_than_expected(case):
    seen = seen_limits(header_list(case), now=CASES_NOW, pack=pack_for(provider=case["provider"]))
    known = merge_observed((), [ObservedLimit(each) for each in seen], CASES_NOW)
    held = next_call_at(known, CASES_NOW) - CASES_NOW
    resets = [each.reset_seconds for each in seen if each.remaining == 0 and each.reset_seconds]
    assert held <= min(max(resets, default=0.0), 86_400.0) + 1e-6
    if resets:
        assert held == pytest.approx(min(max(resets), 86_400.0), abs=1e-6)


# --- what follows at the gate ----------------------------------------------------------------------------


def test_an_exhausted_limit_closes_the_gate_without_a_probe_and_opens_by_itself():
    row = a_row(after(requests(remaining=0, reset=12.0)))
    gate_check = GateCheck(row, 0, NOW)
    assert not gate_check.is_open
    assert gate_check.wait() == 12.0
    opened = GateCheck(row, 0, NOW + 12.0)
    assert opened.is_open
    assert opened.admit() == Admission(0.0, is_probe=False)
    assert (row.gate.failures, row.gate.parked_by, row.gate.slow_start_at) == (0, None, None)


def test_tasks_of_an_exhausted_long_limit_are_blocked_with_a_reason_and_time():
    row = a_row(after(requests(remaining=0, reset=3_600.0)))
    words = "its limit of requests is used up; opens in 1 h"
    assert format_block(find_block(row, NOW), NO_LIMITS, NOW) == words
    assert explain_wait(waiting_for(row), NOW) == [f"upstream u: gate: {words}"]
    assert find_block(row, NOW + 3_600.0) is None


@pytest.mark.parametrize(("used", "reset"), [((), 12.0), ((requests(100, 99, 864.0),), 86_400.0)])
def test_tasks_of_a_briefly_exhausted_or_evenly_refilled_limit_are_paced(used, reset):
    row = a_row(after(*used, requests(100, 0, reset)))
    assert find_block(row, NOW) is None
    (reason,) = explain_wait(waiting_for(row), NOW)
    assert reason.startswith("upstream u: limit: its limit of requests is used up; opens in ")


def waiting_for(row):
    serving = LiveWorkers([LiveWorker(["*"], None, 1)])
    return WaitingTask(State.READY, "q", "f", "u", None, "", [row], 0, serving, True)


def test_a_single_call_waits_for_the_opening_or_is_refused_uncharged():
    row = a_row(after(requests(remaining=0, reset=12.0)))
    assert take_call_slot(row, max_wait_seconds=30, now=NOW)[0].wait_seconds == 12.0
    refused, same = take_call_slot(row, max_wait_seconds=5, now=NOW)
    assert (refused.is_granted, refused.wait_seconds, refused.reason, same) == (
        False,
        12.0,
        "rate_limit",
        row,
    )


def waits(gate_check: GateCheck, count: int) -> list[float]:
    return [round(gate_check.admit().wait_seconds, 3) for _ in range(count)]


@pytest.mark.parametrize("late", [0.0, 0.2])
def test_an_exhausted_window_opens_without_slots_from_its_closed_time(late):
    given = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    row = a_row(after(requests(remaining=0, reset=12.0)), given)
    slots = [max(0.0, number * 0.1 - late) for number in range(6)]
    assert waits(GateCheck(row, 0, NOW + 12.0 + late), 6) == pytest.approx(slots)


def test_a_newly_learned_rate_has_no_earlier_slots():
    row = a_row(after(requests(600, 100, 50.0)))
    assert waits(GateCheck(row, 0, NOW), 3) == pytest.approx([0.0, 60 / 694, 120 / 694], abs=0.001)


def test_a_check_of_an_exhausted_window_changes_no_row():
    row = a_row(after(requests(600, 0, 60.0)), NO_LIMITS)
    assert not GateCheck(row, 0, NOW).is_changed


def test_a_person_who_opens_the_gate_overrides_the_headers():
    learned = after(requests(100, 0, 3000.0))
    gate = gates.open_by_person(Gate(learned_limits=learned), NO_LIMITS, NOW)
    assert exhausted_limit(gate.learned_limits, NOW) is None
    assert gate.learned_limits[0].limit == 100


def test_learned_limits_survive_a_park():
    learned = after(requests(100, 0, 3000.0))
    parked = gates.park_by_person(Gate(learned_limits=learned), NOW, 5.0, "")
    assert parked.parked_by is ParkedBy.PERSON
    assert gates.gate_at(parked, NO_LIMITS, NOW + 6.0).learned_limits == learned


# --- the pace --------------------------------------------------------------------------------------------


def test_calls_are_paced_from_half_used_until_the_limit_is_nearly_full_again():
    known: tuple[LearnedLimit, ...] = ()
    slow = []
    for left in (599, 301, 300, 400, 539, 541, 400):
        known = merge_observed(known, [ObservedLimit(requests(600, left, (600 - left) / 10))], NOW)
        slow.append(bool(with_learned_rates(NO_LIMITS, Gate(learned_limits=known), NOW).windows))
    assert slow == [False, False, True, True, True, False, False]


def test_a_learned_rate_is_forgotten_after_a_minute_without_responses():
    known = after(requests(600, 100, 50.0))
    assert with_learned_rates(NO_LIMITS, Gate(learned_limits=known), NOW + 59).windows == (
        Window("shown_requests_per_minute", 694, 60.0),
    )
    assert with_learned_rates(NO_LIMITS, Gate(learned_limits=known), NOW + 61) is NO_LIMITS


def test_a_limit_in_headers_holds_together_with_a_declared_one():
    declared = Window("requests_per_minute", 900, 60.0)
    known = after(requests(600, 100, 50.0))
    assert with_learned_rates(Limits(windows=(declared,)), Gate(learned_limits=known), NOW).windows == (
        declared,
        Window("shown_requests_per_minute", 694, 60.0),
    )


def test_scarce_tokens_limit_the_rate_of_calls_of_the_usual_size():
    known = after(HeaderLimit(Dimension.TOKENS, 90_000.0, 30_000.0, 40.0), needs=300)
    assert with_learned_rates(NO_LIMITS, Gate(learned_limits=known), NOW).windows == (
        Window("shown_tokens_per_minute", 397, 60.0),
    )
    unsized = after(HeaderLimit(Dimension.TOKENS, 90_000.0, 30_000.0, 40.0), needs=0)
    assert with_learned_rates(NO_LIMITS, Gate(learned_limits=unsized), NOW) is NO_LIMITS


def test_a_declared_window_above_the_observed_limit_is_found():
    given = Limits(
        windows=(Window("requests_per_minute", 900, 60.0), Window("requests_per_day", 10, 86_400.0))
    )
    assert windows_above_observed(given, after(requests(600, 599, 0.1))) == [(given.windows[0], 600)]
    assert windows_above_observed(given, after(requests(900, 899, 0.06))) == []
    # A window that is not named, and cannot be inferred, is taken for the minute that most document.
    assert windows_above_observed(given, after(requests(600, 599, 50.0))) == [(given.windows[0], 600)]


def test_only_changes_that_others_must_know_are_shared():
    (before,) = after(requests(600, 599, 0.1))
    (less,) = merge_observed([before], [ObservedLimit(requests(600, 500, 10.0))], NOW + 1)
    (half,) = merge_observed([before], [ObservedLimit(requests(600, 300, 30.0))], NOW + 1)
    (raised,) = merge_observed([before], [ObservedLimit(requests(900, 800, 6.0))], NOW + 1)
    assert is_worth_sharing(None, before)
    assert not is_worth_sharing(before, less)
    assert is_worth_sharing(before, half)
    assert is_worth_sharing(before, raised)
    assert is_worth_sharing(before, replace(before, seen_at=NOW + 11))
    assert is_worth_sharing(before, replace(before, opens_at=NOW + 1))


# --- against a bucket ------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@example(limit=120, at_first=0.1015625, slots=13, latency=0.25)  # a burst when a spent window opened
@example(limit=242, at_first=0.1015625, slots=23, latency=0.05)  # a burst when a pace was learned
@given(
    limit=st.integers(60, 1200),
    at_first=st.floats(0.1, 1.0),
    slots=st.integers(1, 24),
    latency=st.floats(0.01, 1.0),
)
def test_a_provider_that_shows_its_limit_is_fully_used_and_rarely_refuses(limit, at_first, slots, latency):
    """Many tasks from a cold start, nothing declared. Refused at most those under way when it was learned."""
    refused, answered, _ = against_a_bucket(limit, at_first * limit, slots, latency, seconds=90.0)
    assert refused <= max(0, slots - at_first * limit) + 1
    possible = min(at_first * limit + 1.5 * limit, 90.0 / latency * slots)
    assert answered >= 0.9 * (possible - limit / 2) - slots


def against_a_bucket(limit, level, slots, latency, *, seconds):
    """Run tasks against a refilling bucket, each answer heard at once; return refused, answered, row."""
    row, now, read_at = a_row(()), NOW, NOW
    refused = answered = 0
    under_way: list[tuple[float, int, float, HeaderLimit]] = []
    numbers = count()
    while now < NOW + seconds:
        while under_way and under_way[0][0] <= now:
            _, _, sent_at, seen = heapq.heappop(under_way)
            known = merge_observed(
                row.gate.learned_limits, [ObservedLimit(seen, sent_seconds_ago=now - sent_at)], now
            )
            row = replace(row, gate=replace(row.gate, learned_limits=known))
        gate_check = GateCheck(row, len(under_way), now)
        while len(under_way) < slots and gate_check.is_open:
            sent_at = now + gate_check.admit().wait_seconds
            level, read_at = min(limit, level + (sent_at - read_at) * limit / 60), sent_at
            if level >= 1:
                level, answered = level - 1, answered + 1
            else:
                refused += 1
            shown = requests(limit, math.floor(level), (limit - level) * 60 / limit)
            heapq.heappush(under_way, (sent_at + latency, next(numbers), sent_at, shown))
        row = gate_check.row
        now += 0.05
    return refused, answered, row
