"""Whether a redrive goes on, from how the first attempts of its letters ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.deadletter.policy.judgement import Judgement, Verdict, judge_canary, judge_feeding
from tidegate.store.operation_rows import FirstTry

tries = st.lists(
    st.builds(FirstTry, st.sampled_from(["f", "g"]), st.sampled_from(["", "a", "b"]), st.booleans()),
    max_size=60,
)
shares = st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0])


def judge(
    found: list[FirstTry], pending: int = 0, stop_above: float = 0.2, seconds: float = 0.0
) -> Judgement:
    return judge_canary(found, pending, stop_above=stop_above, seconds=seconds, limit_seconds=60.0)


def ended(failed: int, succeeded: int, function: str = "f", tenant: str = "") -> list[FirstTry]:
    return [FirstTry(function, tenant, True)] * failed + [FirstTry(function, tenant, False)] * succeeded


@given(tries, st.integers(0, 20), shares)
def test_a_canary_never_goes_on_with_more_failures_than_allowed(found, pending, stop_above):
    verdict = judge(found, pending, stop_above).verdict

    failed = sum(each.failed for each in found)
    if failed > stop_above * (len(found) + pending):
        assert verdict is Verdict.STOP
    if verdict is Verdict.GO_ON:
        assert pending == 0
        assert failed <= stop_above * len(found)


@given(tries, st.randoms(use_true_random=False), shares)
def test_the_order_of_the_outcomes_does_not_matter(found, random, stop_above):
    other = list(found)
    random.shuffle(other)

    assert judge(found, 3, stop_above).verdict is judge(other, 3, stop_above).verdict


@given(tries, st.integers(1, 10), shares, st.sampled_from(["f", "g"]))
def test_a_stop_because_of_all_letters_is_final_however_the_others_end(found, pending, stop_above, function):
    failed = sum(each.failed for each in found)
    if failed <= stop_above * (len(found) + pending):
        return  # it has not stopped because of all letters
    later = [*found, *ended(0, pending, function)]

    assert judge(found, pending, stop_above).verdict is Verdict.STOP
    assert judge(later, 0, stop_above).verdict is Verdict.STOP


@given(tries, st.integers(0, 5), shares)
def test_time_alone_never_makes_a_canary_go_on(found, pending, stop_above):
    soon, late = judge(found, pending, stop_above), judge(found, pending, stop_above, seconds=1_000.0)

    if soon.verdict is Verdict.WAIT:
        assert late.verdict is Verdict.STOP
    else:
        assert late == soon


def test_a_canary_waits_for_its_first_attempts_and_stops_after_its_time():
    assert judge(ended(0, 3), pending=2).verdict is Verdict.WAIT
    stopped = judge(ended(0, 3), pending=2, seconds=60.0)

    assert stopped.verdict is Verdict.STOP
    assert stopped.why == "the first attempts of 2 of 5 letters of the canary did not end within 1 min"


def test_a_tenant_whose_letters_fail_stops_a_redrive_that_succeeds_for_the_others():
    found = [*ended(0, 50, tenant="good"), *ended(2, 0, tenant="bad")]

    stopped = judge(found)

    assert stopped.verdict is Verdict.STOP
    assert stopped.why == "2 of 2 first attempts of the tenant bad failed, more than 20%"


def test_one_failure_in_a_small_part_proves_nothing():
    assert judge([*ended(0, 50, tenant="good"), *ended(1, 0, tenant="bad")]).verdict is Verdict.GO_ON


@pytest.mark.parametrize(
    ("failed", "succeeded", "verdict"),
    [(19, 0, Verdict.GO_ON), (4, 16, Verdict.GO_ON), (5, 15, Verdict.STOP), (20, 80, Verdict.GO_ON)],
)
def test_after_the_canary_the_latest_twenty_or_more_are_judged(failed, succeeded, verdict):
    assert judge_feeding(ended(failed, succeeded), stop_above=0.2).verdict is verdict
