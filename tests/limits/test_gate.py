"""Gates: what parks them, who opens them, when one task may probe, how they start slowly."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.limits import gate as gates
from tidegate.limits import in_flight_learning, probes
from tidegate.limits.admission import GateCheck
from tidegate.limits.blocks import find_block
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate, GateRow, GateState, ParkedBy

NOW = 1_800_000_000.0
LIMITS = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
FLOWING = Gate()
DOWN = CallFailure(Reason.SERVER_ERROR, message="503")
FULL = CallFailure(Reason.OVERLOADED)


def failed(gate: Gate, *signals: CallFailure, now: float = NOW) -> Gate:
    for call_failure in signals:
        gate = gates.apply_failure(gates.gate_at(gate, LIMITS, now), call_failure, LIMITS, now)
    return gate


def good(gate: Gate, now: float, *, is_probe: bool = False) -> Gate:
    gate = gates.gate_at(gate, LIMITS, now)
    return gates.apply_success(gate, LIMITS, now, seconds=0.1, successes=1, is_probe=is_probe)


def gate_check(gate: Gate, now: float, in_flight: int = 0, limits: Limits = LIMITS) -> GateCheck:
    return GateCheck(GateRow(GateKind.UPSTREAM, "u", limits, gate), in_flight, now)


@given(wait=st.floats(0, 86_400), jitter=st.floats(0, 0.999))
def test_a_named_wait_parks_the_gate_at_least_that_long_and_it_opens_by_itself(wait, jitter):
    gate = failed(FLOWING, CallFailure(Reason.RATE_LIMIT, wait_seconds=wait, jitter=jitter))
    assert gate.state is GateState.PARKED
    assert NOW + wait <= gate.until_at <= NOW + wait + 5.0
    assert gates.gate_at(gate, LIMITS, gate.until_at).state is GateState.FLOWING
    if wait > 1:
        assert not gate_check(gate, NOW + wait * 0.99).is_open


def test_the_longest_of_several_named_waits_applies():
    waits = [CallFailure(Reason.RATE_LIMIT, wait_seconds=seconds) for seconds in (2.0, 30.0, 1.0)]
    assert failed(FLOWING, *waits).until_at == NOW + 30.0


def test_an_overload_without_a_wait_is_probed_one_at_a_time_after_a_second():
    gate = failed(FLOWING, FULL)
    assert gate.state is GateState.PARKED
    assert not gate_check(gate, NOW + 0.9).is_open
    at = gate_check(gate, NOW + 1.0)
    assert at.is_open
    assert at.admit().is_probe
    assert at.row.gate.state is GateState.PROBING
    assert not at.is_open


def test_an_overload_that_names_a_wait_is_probed_one_at_a_time_after_it():
    gate = failed(FLOWING, CallFailure(Reason.OVERLOADED, wait_seconds=5.0))
    assert not gate_check(gate, NOW + 4.9).is_open
    at = gate_check(gate, NOW + 5.0)
    assert at.admit().is_probe
    assert not at.is_open
    again = failed(at.row.gate, CallFailure(Reason.OVERLOADED, wait_seconds=30.0), now=NOW + 6.0)
    assert not gate_check(again, NOW + 35.9).is_open, "never sooner than the server named"
    assert gate_check(again, NOW + 36.0).is_open


@pytest.mark.parametrize("wait", [0.0, 0.006, 1.0, 30.0])
def test_a_rate_limit_that_keeps_naming_waits_is_finally_probed_one_at_a_time(wait):
    gate, now, opened = FLOWING, NOW, 0
    while gate.parked_by is not ParkedBy.FAILURES:
        gate = failed(gate, CallFailure(Reason.RATE_LIMIT, wait_seconds=wait), now=now)
        now += max(wait, 0.2)
        opened += 1
    assert opened <= 12
    assert now - NOW <= max(3.0, 7 * wait)
    assert not gate_check(gate, now - max(wait, 0.2) + wait * 0.99).is_open


def test_after_a_success_between_two_rate_limits_the_next_wait_is_applied():
    gate, now = FLOWING, NOW
    for _ in range(50):
        gate = failed(gate, CallFailure(Reason.RATE_LIMIT, wait_seconds=0.2), now=now)
        assert gate.parked_by is ParkedBy.SERVER
        now += 1.5
        gate = good(gate, now)


def of(task_id: str, call_failure: CallFailure = DOWN) -> CallFailure:
    return replace(call_failure, task_id=task_id)


@pytest.mark.parametrize("reason", [Reason.SERVER_ERROR, Reason.TIMEOUT, Reason.NETWORK])
def test_repeated_failures_of_one_task_do_not_park_the_gate(reason):
    poisoned = CallFailure(reason, task_id="poisoned")
    gate = failed(FLOWING, *[poisoned] * 20)
    assert (gate.state, probes.admits_only_probes(gate)) == (GateState.FLOWING, False)
    assert gate_check(gate, NOW).is_open
    assert gate_check(gate, NOW).admit().is_probe is False


def test_failures_of_two_tasks_admit_only_probes_unless_a_call_succeeded_between():
    poisoned, other = of("poisoned"), of("other")
    assert probes.admits_only_probes(failed(FLOWING, poisoned, other))
    between = gates.apply_call_success(failed(FLOWING, poisoned), NOW)
    assert not probes.admits_only_probes(failed(between, other))
    assert not probes.admits_only_probes(failed(good(failed(FLOWING, poisoned), NOW), other))
    parked = failed(FLOWING, *[poisoned] * 4, other)
    assert (parked.state, parked.parked_by) == (GateState.PARKED, ParkedBy.FAILURES)


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
    assert len(gate.overloaded_tasks) == gates.MAX_REFUSED_TASKS
    assert failed(gate, of("task 0", FULL), now=NOW + 200).state is GateState.PARKED
    assert failed(gate, of("task 99", FULL), now=NOW + 200).state is GateState.FLOWING


def limited(task_id, wait_seconds=None):
    return CallFailure(Reason.RATE_LIMIT, task_id=task_id, wait_seconds=wait_seconds)


@pytest.mark.parametrize("wait", [None, 1.0, 60.0])
def test_repeated_rate_limits_of_one_task_alone_do_not_park_the_gate(wait):
    gate, now = FLOWING, NOW
    for _ in range(gates.LONE_LIMITS):
        gate = failed(gate, limited("large", wait), now=now)
        assert gate.state is GateState.PARKED
        gate = good(gates.gate_at(gate, LIMITS, now + 70), now + 70, is_probe=True)
        now += 71
    assert failed(gate, limited("large", wait), now=now).state is GateState.FLOWING
    assert failed(gate, limited("other", wait), now=now).state is GateState.PARKED
    assert failed(gate, limited("", wait), now=now).state is GateState.PARKED, "a call outside tasks"


def test_rate_limits_of_one_task_park_the_gate_if_no_call_succeeds_between_them():
    gate = good(FLOWING, NOW - 1)
    for number in range(10):
        now = NOW + 2 * number
        gate = failed(gates.gate_at(gate, LIMITS, now), limited("one", 1.0), now=now)
        assert gate.state is GateState.PARKED
    assert len(gate.rate_limited_tasks) == 1


def test_failures_of_two_tasks_do_not_admit_the_next_task():
    gate = failed(FLOWING, of("one"), of("other"))
    assert gate.state is GateState.FLOWING
    assert not gate_check(gate, NOW + 0.5, in_flight=7).is_open
    assert gate_check(good(gate, NOW + 0.6), NOW + 0.6).is_open


def test_failures_in_a_row_park_the_gate_until_a_probe_succeeds_and_it_starts_slowly():
    gate = failed(FLOWING, *[DOWN] * 5)
    assert (gate.state, gate.parked_by, gate.until_at) == (GateState.PARKED, ParkedBy.FAILURES, None)
    gate = good(gate, NOW + 5)
    assert gate.state is GateState.PARKED, "an old call that ends well proves nothing"
    gate = good(gate, NOW + 6, is_probe=True)
    assert gate.state is GateState.FLOWING
    assert gates.slow_start_share(gate, LIMITS, NOW + 6) == pytest.approx(0.1)
    assert gates.slow_start_share(gate, LIMITS, NOW + 21) == pytest.approx(0.4)
    assert gates.slow_start_share(gate, LIMITS, NOW + 60) == 1.0


@given(st.lists(st.floats(0.01, 30), min_size=1, max_size=60))
def test_probes_of_a_down_upstream_are_single_and_a_second_apart(gaps):
    gate, now, probes = failed(FLOWING, *[DOWN] * 5), NOW, []
    for gap in gaps:
        now += gap
        at = gate_check(gate, now, in_flight=3)
        while at.is_open:
            assert at.admit().is_probe
            probes.append(now)
        gate = failed(at.row.gate, DOWN, now=now) if now in probes else at.row.gate
    assert all(later - earlier >= 0.999 for earlier, later in itertools.pairwise(probes))


def test_late_failures_of_old_calls_do_not_postpone_the_next_probe():
    gate = failed(FLOWING, *[DOWN] * 5)
    for tenth in range(1, 10):
        gate = failed(gate, DOWN, now=NOW + tenth / 10)
    assert gate_check(gate, NOW + 1).is_open


def test_a_probe_that_never_answers_is_followed_by_another():
    gate = failed(FLOWING, *[DOWN] * 5)
    first = gate_check(gate, NOW + 1)
    first.admit()
    assert not gate_check(first.row.gate, NOW + 1.5).is_open
    assert gate_check(first.row.gate, NOW + 3.1).is_open


def test_failures_of_two_tasks_during_a_slow_start_halve_the_share():
    gate = good(failed(FLOWING, *[DOWN] * 5), NOW, is_probe=True)
    before = gates.slow_start_share(gate, LIMITS, NOW + 20)
    assert gates.slow_start_share(failed(gate, of("one"), now=NOW + 20), LIMITS, NOW + 20) == pytest.approx(
        before
    )
    gate = failed(gate, of("one"), of("other"), now=NOW + 20)
    assert gates.slow_start_share(gate, LIMITS, NOW + 20) == pytest.approx(before / 2)


@pytest.mark.parametrize("reason", [Reason.QUOTA, Reason.AUTH])
def test_an_account_failure_parks_the_gate_until_a_person_opens_it(reason):
    gate = failed(FLOWING, CallFailure(reason, needs_person=True, message="no credit"))
    for later in (
        good(gate, NOW + 60, is_probe=True),
        failed(gate, CallFailure(Reason.RATE_LIMIT, wait_seconds=1.0), now=NOW + 60),
        gates.gate_at(gate, LIMITS, NOW + 10**6),
    ):
        assert (later.state, later.parked_by, later.reason) == (GateState.PARKED, ParkedBy.ACCOUNT, reason)
        assert gate_check(later, NOW + 10**6).wait() is None
    assert gates.open_gate(gate, LIMITS, NOW).state is GateState.FLOWING


def test_a_quota_with_a_reset_opens_by_itself():
    assert failed(FLOWING, CallFailure(Reason.QUOTA, wait_seconds=3_600.0)).until_at == NOW + 3_600.0


def test_a_person_parks_for_a_time_or_until_it_is_opened():
    assert gates.park_by_person(FLOWING, NOW, 600.0, "deploy").until_at == NOW + 600
    for_good = gates.park_by_person(FLOWING, NOW, None, "deploy")
    assert failed(for_good, DOWN, FULL) == for_good
    probe = gates.request_probe(for_good, NOW)
    assert gate_check(probe, NOW).admit().is_probe


def test_an_upstream_without_a_rate_limit_starts_slowly_by_runs_in_flight():
    bare = Limits()
    gate = replace(failed(FLOWING, *[DOWN] * 5), failures=5)
    gate = gates.apply_success(gate, bare, NOW, seconds=0.1, successes=1, is_probe=True)
    rooms = []
    for successes in (0, 1, 3):
        rooms.append(in_flight_learning.free_in_flight(replace(gate, successes=successes), bare, in_flight=0))
    assert rooms == [1, 3, 7]


def test_runs_in_flight_are_limited():
    limits = Limits(max_in_flight=3)
    at = gate_check(FLOWING, NOW, in_flight=1, limits=limits)
    admitted = 0
    while at.is_open:
        at.admit()
        admitted += 1
    assert admitted == 2
    assert at.next_check_seconds() is None


def test_tasks_of_a_limit_by_the_minute_are_not_blocked_but_those_of_an_exhausted_day_are():
    day = Limits(windows=(Window("requests_per_day", 1, 86_400.0, is_fixed=True),))
    at = gate_check(FLOWING, NOW, limits=day)
    assert find_block(at.row, NOW) is None
    at.admit()
    block = find_block(at.row, NOW)
    assert block is not None
    assert block.window == "requests_per_day"
    paced = gate_check(FLOWING, NOW)
    for _ in range(8):
        paced.admit()
    assert find_block(paced.row, NOW) is None
