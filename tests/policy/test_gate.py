"""Gates: what parks them, who opens them, when one task may probe, how they start slowly."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import Reason
from tidegate.domain.upstream import Gate, GateKind, GateRow, GateState, Limits, ParkedBy, Signal, Window
from tidegate.policy import gate as gates
from tidegate.policy.admission import Door, blocked

NOW = 1_800_000_000.0
LIMITS = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
FLOWING = Gate()
DOWN = Signal(Reason.SERVER_ERROR, message="503")
FULL = Signal(Reason.OVERLOADED)


def failed(gate: Gate, *signals: Signal, now: float = NOW) -> Gate:
    for signal in signals:
        gate = gates.after_failure(gates.as_of(gate, LIMITS, now), signal, LIMITS, now)
    return gate


def good(gate: Gate, now: float, *, is_probe: bool = False) -> Gate:
    gate = gates.as_of(gate, LIMITS, now)
    return gates.after_success(gate, LIMITS, now, seconds=0.1, goods=1, is_probe=is_probe)


def door(gate: Gate, now: float, in_flight: int = 0, limits: Limits = LIMITS) -> Door:
    return Door(GateRow(GateKind.UPSTREAM, "u", limits, gate), in_flight, now)


@given(wait=st.floats(0, 86_400), spread=st.floats(0, 0.999))
def test_a_named_wait_parks_at_least_so_long_and_opens_by_itself(wait, spread):
    gate = failed(FLOWING, Signal(Reason.RATE_LIMIT, wait_seconds=wait, spread=spread))
    assert gate.state is GateState.PARKED
    assert NOW + wait <= gate.until_at <= NOW + wait + 5.0
    assert gates.as_of(gate, LIMITS, gate.until_at).state is GateState.FLOWING
    if wait > 1:
        assert not door(gate, NOW + wait * 0.99).is_open


def test_the_longest_of_several_named_waits_counts():
    waits = [Signal(Reason.RATE_LIMIT, wait_seconds=seconds) for seconds in (2.0, 30.0, 1.0)]
    assert failed(FLOWING, *waits).until_at == NOW + 30.0


def test_an_overload_without_a_wait_is_tried_by_single_probes_from_a_second_on():
    gate = failed(FLOWING, FULL)
    assert gate.state is GateState.PARKED
    assert not door(gate, NOW + 0.9).is_open
    at = door(gate, NOW + 1.0)
    assert at.is_open
    assert at.admit().is_probe
    assert at.row.gate.state is GateState.PROBING
    assert not at.is_open


def test_an_overload_that_names_a_wait_is_tried_by_single_probes_after_it():
    gate = failed(FLOWING, Signal(Reason.OVERLOADED, wait_seconds=5.0))
    assert not door(gate, NOW + 4.9).is_open
    at = door(gate, NOW + 5.0)
    assert at.admit().is_probe
    assert not at.is_open
    again = failed(at.row.gate, Signal(Reason.OVERLOADED, wait_seconds=30.0), now=NOW + 6.0)
    assert not door(again, NOW + 35.9).is_open, "never sooner than the server named"
    assert door(again, NOW + 36.0).is_open


@pytest.mark.parametrize("wait", [0.0, 0.006, 1.0, 30.0])
def test_a_rate_limit_that_names_wait_after_wait_is_tried_by_single_probes_in_the_end(wait):
    gate, now, opened = FLOWING, NOW, 0
    while gate.by is not ParkedBy.FAILURES:
        gate = failed(gate, Signal(Reason.RATE_LIMIT, wait_seconds=wait), now=now)
        now += max(wait, 0.2)
        opened += 1
    assert opened <= 12
    assert now - NOW <= max(3.0, 7 * wait)
    assert not door(gate, now - max(wait, 0.2) + wait * 0.99).is_open


def test_a_good_call_between_two_rate_limits_has_the_next_wait_believed():
    gate, now = FLOWING, NOW
    for _ in range(50):
        gate = failed(gate, Signal(Reason.RATE_LIMIT, wait_seconds=0.2), now=now)
        assert gate.by is ParkedBy.SERVER
        now += 1.5
        gate = good(gate, now)


def of(task_id: str, signal: Signal = DOWN) -> Signal:
    return replace(signal, task_id=task_id)


@pytest.mark.parametrize("reason", [Reason.SERVER_ERROR, Reason.TIMEOUT, Reason.NETWORK])
def test_one_task_that_fails_again_and_again_holds_nobody_up(reason):
    poisoned = Signal(reason, task_id="poisoned")
    gate = failed(FLOWING, *[poisoned] * 20)
    assert (gate.state, gates.is_held(gate)) == (GateState.FLOWING, False)
    assert door(gate, NOW).is_open
    assert door(gate, NOW).admit().is_probe is False


def test_two_tasks_that_fail_hold_the_gate_and_a_good_call_between_them_does_not_let_them():
    poisoned, other = of("poisoned"), of("other")
    assert gates.is_held(failed(FLOWING, poisoned, other))
    between = gates.after_answer(failed(FLOWING, poisoned), NOW)
    assert not gates.is_held(failed(between, other))
    assert not gates.is_held(failed(good(failed(FLOWING, poisoned), NOW), other))
    parked = failed(FLOWING, *[poisoned] * 4, other)
    assert (parked.state, parked.by) == (GateState.PARKED, ParkedBy.FAILURES)


def test_an_overload_of_a_task_that_parked_the_gate_before_delays_that_task_alone():
    poisoned = of("poisoned", FULL)
    gate = failed(FLOWING, poisoned)
    assert gate.state is GateState.PARKED
    assert failed(gate, poisoned, now=NOW + 2).state is GateState.PARKED, "nobody was served since"
    opened = good(gate, NOW + 3, is_probe=True)
    assert failed(opened, poisoned, now=NOW + 4) == opened
    assert failed(opened, of("other", FULL), now=NOW + 4).state is GateState.PARKED


def test_the_tasks_remembered_for_an_overload_are_the_latest_few():
    gate = FLOWING
    for number in range(100):
        gate = failed(gate, of(f"task {number}", FULL), now=NOW + number)
        gate = good(gate, NOW + number + 0.5, is_probe=True)
    assert len(gate.parked_for) == gates.OVERLOADED_TASKS_KEPT
    assert failed(gate, of("task 0", FULL), now=NOW + 200).state is GateState.PARKED
    assert failed(gate, of("task 99", FULL), now=NOW + 200).state is GateState.FLOWING


def limited(task_id, wait_seconds=None):
    return Signal(Reason.RATE_LIMIT, task_id=task_id, wait_seconds=wait_seconds)


@pytest.mark.parametrize("wait", [None, 1.0, 60.0])
def test_rate_limits_that_one_task_alone_meets_again_and_again_do_not_park_for_all(wait):
    gate, now = FLOWING, NOW
    for _ in range(gates.LONE_LIMITS):
        gate = failed(gate, limited("large", wait), now=now)
        assert gate.state is GateState.PARKED
        gate = good(gates.as_of(gate, LIMITS, now + 70), now + 70, is_probe=True)
        now += 71
    assert failed(gate, limited("large", wait), now=now).state is GateState.FLOWING
    assert failed(gate, limited("other", wait), now=now).state is GateState.PARKED
    assert failed(gate, limited("", wait), now=now).state is GateState.PARKED, "a call outside tasks"


def test_rate_limits_of_one_task_park_as_long_as_nobody_is_served_between_them():
    gate = good(FLOWING, NOW - 1)
    for number in range(10):
        now = NOW + 2 * number
        gate = failed(gates.as_of(gate, LIMITS, now), limited("one", 1.0), now=now)
        assert gate.state is GateState.PARKED
    assert len(gate.limited_for) == 1


def test_failures_of_two_tasks_do_not_admit_the_next_task():
    gate = failed(FLOWING, of("one"), of("other"))
    assert gate.state is GateState.FLOWING
    assert not door(gate, NOW + 0.5, in_flight=7).is_open
    assert door(good(gate, NOW + 0.6), NOW + 0.6).is_open


def test_failures_in_a_row_park_until_a_good_probe_and_then_it_starts_slowly():
    gate = failed(FLOWING, *[DOWN] * 5)
    assert (gate.state, gate.by, gate.until_at) == (GateState.PARKED, ParkedBy.FAILURES, None)
    gate = good(gate, NOW + 5)
    assert gate.state is GateState.PARKED, "an old call that ends well proves nothing"
    gate = good(gate, NOW + 6, is_probe=True)
    assert gate.state is GateState.FLOWING
    assert gates.share(gate, LIMITS, NOW + 6) == pytest.approx(0.1)
    assert gates.share(gate, LIMITS, NOW + 21) == pytest.approx(0.4)
    assert gates.share(gate, LIMITS, NOW + 60) == 1.0


@given(st.lists(st.floats(0.01, 30), min_size=1, max_size=60))
def test_while_it_is_down_probes_are_single_and_a_second_apart(gaps):
    gate, now, probes = failed(FLOWING, *[DOWN] * 5), NOW, []
    for gap in gaps:
        now += gap
        at = door(gate, now, in_flight=3)
        while at.is_open:
            assert at.admit().is_probe
            probes.append(now)
        gate = failed(at.row.gate, DOWN, now=now) if now in probes else at.row.gate
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(probes))


def test_late_failures_of_calls_begun_before_put_no_probe_off():
    gate = failed(FLOWING, *[DOWN] * 5)
    for tenth in range(1, 10):
        gate = failed(gate, DOWN, now=NOW + tenth / 10)
    assert door(gate, NOW + 1).is_open


def test_a_probe_that_never_answers_is_followed_by_another():
    gate = failed(FLOWING, *[DOWN] * 5)
    first = door(gate, NOW + 1)
    first.admit()
    assert not door(first.row.gate, NOW + 1.5).is_open
    assert door(first.row.gate, NOW + 3.1).is_open


def test_failures_of_two_tasks_during_a_slow_start_halve_the_share():
    gate = good(failed(FLOWING, *[DOWN] * 5), NOW, is_probe=True)
    before = gates.share(gate, LIMITS, NOW + 20)
    assert gates.share(failed(gate, of("one"), now=NOW + 20), LIMITS, NOW + 20) == pytest.approx(before)
    gate = failed(gate, of("one"), of("other"), now=NOW + 20)
    assert gates.share(gate, LIMITS, NOW + 20) == pytest.approx(before / 2)


@pytest.mark.parametrize("reason", [Reason.QUOTA, Reason.AUTH])
def test_an_account_matter_waits_for_a_person_and_nothing_else_opens_it(reason):
    gate = failed(FLOWING, Signal(reason, needs_person=True, message="no credit"))
    for later in (
        good(gate, NOW + 60, is_probe=True),
        failed(gate, Signal(Reason.RATE_LIMIT, wait_seconds=1.0), now=NOW + 60),
        gates.as_of(gate, LIMITS, NOW + 10**6),
    ):
        assert (later.state, later.by, later.reason) == (GateState.PARKED, ParkedBy.ACCOUNT, reason)
        assert door(later, NOW + 10**6).wait() is None
    assert gates.opened(gate, LIMITS, NOW).state is GateState.FLOWING


def test_a_quota_with_a_reset_opens_by_itself():
    assert failed(FLOWING, Signal(Reason.QUOTA, wait_seconds=3_600.0)).until_at == NOW + 3_600.0


def test_a_person_parks_for_a_time_or_for_good():
    assert gates.parked_by_person(FLOWING, NOW, 600.0, "deploy").until_at == NOW + 600
    for_good = gates.parked_by_person(FLOWING, NOW, None, "deploy")
    assert failed(for_good, DOWN, FULL) == for_good
    probe = gates.probed_by_person(for_good, NOW)
    assert door(probe, NOW).admit().is_probe


def test_an_upstream_without_a_pace_starts_slowly_by_runs_in_flight():
    bare = Limits()
    gate = replace(failed(FLOWING, *[DOWN] * 5), failures=5)
    gate = gates.after_success(gate, bare, NOW, seconds=0.1, goods=1, is_probe=True)
    rooms = []
    for goods in (0, 1, 3):
        rooms.append(gates.room(replace(gate, goods=goods), bare, in_flight=0))
    assert rooms == [1, 3, 7]


def test_runs_in_flight_are_limited():
    limits = Limits(max_in_flight=3)
    at = door(FLOWING, NOW, in_flight=1, limits=limits)
    admitted = 0
    while at.is_open:
        at.admit()
        admitted += 1
    assert admitted == 2
    assert at.again_seconds() is None


def test_what_a_limit_by_the_minute_keeps_back_for_moments_is_not_blocked_but_an_exhausted_day_is():
    day = Limits(windows=(Window("requests_per_day", 1, 86_400.0, fixed=True),))
    at = door(FLOWING, NOW, limits=day)
    assert blocked(at.row, NOW) is None
    at.admit()
    block = blocked(at.row, NOW)
    assert block is not None
    assert block.window == "requests_per_day"
    paced = door(FLOWING, NOW)
    for _ in range(8):
        paced.admit()
    assert blocked(paced.row, NOW) is None
