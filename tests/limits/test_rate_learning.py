"""The rate that is learned from 429s: lowered, approaching the refused rate again, and forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits import gate as gates
from tidegate.limits import gate_rows, rate_learning
from tidegate.limits.admission import GateCheck
from tidegate.limits.call_slots import take_call_slot
from tidegate.limits.formatting import format_gate
from tidegate.limits.learned_limits import with_learned_rates
from tidegate.limits.rate_learning import NO_ATTEMPTS, Attempts
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, GateState, LearnedRate, ObservedLimit, key_gate_name

NOW = 1_800_000_000.0
NO_LIMITS = Limits()
FOUR_HUNDRED = Limits((Window("requests_per_minute", 400, 60.0),))


def busy(per_second: float, seconds: int = 300) -> LearnedRate:
    """So many runs a second succeeded for this time."""
    learned_rate = LearnedRate()
    for second in range(seconds):
        learned_rate = rate_learning.count_successes(
            learned_rate,
            per_second,  # type: ignore[arg-type]
            NOW - seconds + second,
        )
    return learned_rate


def refuse(row: GateRow, now: float, *, wait: float | None = None, began: float = 0.05) -> GateRow:
    failure = CallFailure(Reason.RATE_LIMIT, wait_seconds=wait, began_seconds_ago=began)
    return gate_rows.apply_failure(row, failure, now)


def start_all(row: GateRow, since: float, until: float) -> GateRow:
    """Start a call at each free slot between these times."""
    now = since
    while now < until:
        check = GateCheck(row, 0, now)
        while check.is_open:
            check.admit()
        row, now = check.row, now + 0.1
    return row


def rate(row: GateRow, now: float) -> float | None:
    return rate_learning.per_second(row.gate.learned_rate, now)


def a_row(learned_rate: LearnedRate | None = None, limits: Limits = NO_LIMITS, name: str = "u") -> GateRow:
    gate = Gate(learned_rate=learned_rate or LearnedRate(), typical_seconds=0.5)
    return GateRow(GateKind.UPSTREAM, name, limits, gate)


# --- the first 429 ---------------------------------------------------------------------------------------


@given(st.floats(1.4, 500))
def test_a_first_429_does_not_go_below_what_succeeded_for_a_minute(per_second):
    row = refuse(a_row(busy(per_second)), NOW)
    assert rate(row, NOW) == pytest.approx(per_second, rel=0.05)
    assert row.gate.state is GateState.FLOWING


def test_a_first_429_lowers_a_rate_that_is_seconds_old_because_a_full_bucket_may_have_let_more_through():
    row = refuse(a_row(busy(8, seconds=2)), NOW)
    assert rate(row, NOW) == pytest.approx(4, rel=0.1)
    older = refuse(a_row(busy(8, seconds=10)), NOW)
    assert rate(older, NOW) == pytest.approx(8 * 10 / 12, rel=0.1)


def test_a_first_429_does_not_go_below_the_limit_in_headers():
    shown = ObservedLimit(HeaderLimit(Dimension.REQUESTS, 600.0, 100.0, 50.0))
    row = gate_rows.apply_observed_limits(a_row(busy(4, seconds=5)), [shown], NOW)
    assert rate(refuse(row, NOW), NOW) == pytest.approx(10.0)


def test_a_first_429_halves_a_declared_rate_that_calls_used_up():
    row = refuse(start_all(a_row(limits=FOUR_HUNDRED), NOW, NOW + 3), NOW + 3)
    assert rate(row, NOW + 3) == pytest.approx(400 / 60 / 2)
    assert row.gate.learned_rate.refused_per_second == pytest.approx(400 / 60)


def test_without_any_known_rate_the_gate_parks_and_then_starts_slowly():
    row = refuse(a_row(), NOW)
    assert row.gate.state is GateState.PARKED
    assert rate(row, NOW) == 1.0
    assert rate(row, NOW + 10) == pytest.approx(32.0)


def test_old_successes_do_not_set_a_rate():
    old = rate_learning.count_successes(LearnedRate(), 800, NOW - 3600)
    assert rate(refuse(a_row(old), NOW), NOW) == 1.0


def test_a_key_of_which_nothing_is_known_parks_and_learns_no_rate():
    row = refuse(a_row(name=key_gate_name("u", "a")), NOW)
    assert (row.gate.state, rate(row, NOW)) == (GateState.PARKED, None)


def test_one_success_a_minute_sets_no_low_rate():
    learned_rate = LearnedRate()
    for minute in range(60):
        learned_rate = rate_learning.count_successes(learned_rate, 1, NOW - 3600 + 60 * minute)
    assert rate(refuse(a_row(learned_rate), NOW), NOW) == rate_learning.TRICKLE_PER_SECOND


# --- later 429s ------------------------------------------------------------------------------------------


def test_calls_that_were_handed_out_at_the_old_rate_do_not_lower_it_again():
    first = refuse(a_row(busy(8)), NOW)
    again = refuse(refuse(first, NOW + 0.2), NOW + 0.3)
    late = refuse(again, NOW + 5.0, began=4.9)
    assert late.gate.learned_rate == first.gate.learned_rate


def test_the_calls_that_were_answered_since_the_last_429_show_the_quota():
    row = refuse(a_row(busy(10)), NOW)
    row = start_all(row, NOW, NOW + 20)
    sent = row.buckets["learned_rate"].used
    row = refuse(row, NOW + 20)
    answered = sent / 20
    assert row.gate.learned_rate.per_second == pytest.approx(0.95 * answered, rel=0.1)
    assert row.gate.learned_rate.target_per_second == pytest.approx(answered, rel=0.15)


def test_the_rate_rises_fast_at_first_slowly_near_the_remembered_one_and_then_beyond_it():
    learned_rate = LearnedRate(
        per_second=5.0,
        target_per_second=10.0,
        approach_seconds=100.0,
        slowed_at=NOW,
        grows_since=NOW,
        refused_per_second=10.0,
    )
    at = [
        rate_learning.per_second(learned_rate, NOW + seconds) for seconds in (0, 25, 50, 100, 150, 200, 300)
    ]
    assert at == pytest.approx([5.0, 7.89, 9.375, 10.0, 10.625, 15.0, 30.0], rel=0.01)


def test_the_rate_does_not_grow_while_the_gate_is_parked():
    row = refuse(a_row(busy(10, seconds=5)), NOW, wait=8.0)
    assert row.gate.state is GateState.PARKED
    opened = gates.gate_at(row.gate, NO_LIMITS, NOW + 9.0)
    assert rate_learning.per_second(opened.learned_rate, row.gate.until_at) == rate(row, NOW)


def test_a_rate_is_forgotten_ten_minutes_after_the_last_429_or_later_if_it_is_approached_slowly():
    row = refuse(a_row(busy(8)), NOW)
    assert rate(row, NOW + 600) is not None
    assert rate(row, NOW + 601) is None
    slow = replace(row.gate.learned_rate, approach_seconds=120.0)
    assert rate_learning.per_second(slow, NOW + 700) is not None


def test_a_gate_whose_calls_are_all_refused_at_the_lowered_rate_parks_and_keeps_that_rate():
    first = refuse(a_row(busy(10)), NOW)
    row = start_all(first, NOW, NOW + 0.5)
    for place in range(5):
        assert row.gate.state is GateState.FLOWING
        row = refuse(row, NOW + 0.6 + place / 100)
    assert row.gate.state is GateState.PARKED
    assert row.gate.learned_rate.per_second == first.gate.learned_rate.per_second


@given(
    st.floats(0.1, 100),
    st.floats(0.0, 500),
    st.booleans(),
    st.floats(1.0, 300.0),
    st.floats(0.0, 60.0),
    st.integers(0, 30),
)
def test_a_later_429_never_raises_the_rate_and_leaves_at_least_a_third_of_what_was_answered(
    before, sent, is_tight, elapsed, wait, refusals
):
    learned = LearnedRate(
        per_second=before,
        target_per_second=before * 1.5,
        refused_per_second=before * 1.5,
        approach_seconds=30.0,
        slowed_at=NOW,
        grows_since=NOW,
        refusals=refusals,
    )
    now = NOW + elapsed
    attempts = Attempts(sent=sent, is_tight=is_tight)
    after = rate_learning.slow_down(learned, now, attempts=attempts, began_at=now - 0.05, wait_seconds=wait)
    old, new = rate_learning.per_second(learned, now), rate_learning.per_second(after, now)
    assert old is not None
    assert new is not None
    assert new <= old * 1.001
    answered = (max(sent, refusals + 1) - refusals - 1) / elapsed
    assert new >= min(old, answered) / 3


def test_an_overload_does_not_slow_the_learned_rate():
    failure = CallFailure(Reason.OVERLOADED, wait_seconds=1.0)
    assert rate(gate_rows.apply_failure(a_row(busy(8)), failure, NOW), NOW) is None


def test_nothing_is_learned_from_a_429_that_says_nothing_of_calls():
    learned = rate_learning.slow_down(LearnedRate(), NOW, attempts=NO_ATTEMPTS)
    assert learned.refused_per_second is None
    assert not rate_learning.keeps_gate_open(learned, NO_ATTEMPTS)


# --- where it applies ------------------------------------------------------------------------------------


def test_a_learned_rate_holds_together_with_declared_limits():
    row = refuse(a_row(busy(8), FOUR_HUNDRED), NOW)
    names = [window.name for window in with_learned_rates(FOUR_HUNDRED, row.gate, NOW).windows]
    assert names == ["requests_per_minute", "learned_rate"]


def test_a_declared_limit_stays_the_ceiling_of_a_rate_that_grew_beyond_it():
    row = refuse(a_row(busy(6), FOUR_HUNDRED), NOW)
    later = NOW + 500.0
    grown = rate(row, later)
    assert grown is not None
    assert grown > 400 / 60
    before = row.buckets["requests_per_minute"].used if "requests_per_minute" in row.buckets else 0
    row = start_all(row, later, later + 30)
    assert row.buckets["requests_per_minute"].used - before <= 400 / 60 * 31 + 1


def test_further_calls_of_a_run_and_calls_outside_tasks_keep_to_the_learned_rate():
    row = refuse(a_row(busy(2)), NOW)
    waits = []
    for _ in range(4):
        slot, row = take_call_slot(row, max_wait_seconds=30, now=NOW)
        waits.append(slot.wait_seconds)
    assert waits == pytest.approx([0.0, 0.5, 1.0, 1.5], rel=0.1)


def test_the_learned_rate_is_shown_with_what_it_was_learned_from():
    row = refuse(a_row(busy(8)), NOW)
    shown = format_gate(row.gate, NO_LIMITS, NOW + 20)
    assert shown == "flowing, slowed to 472 a minute: 429 at 472 a minute 20 s ago"


def test_a_rate_above_the_declared_limit_is_not_shown():
    row = refuse(a_row(busy(20), FOUR_HUNDRED), NOW)
    assert format_gate(row.gate, FOUR_HUNDRED, NOW + 3) == "flowing"
