"""The retry decision, one sentence a test."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Counters, Dead, Fence, Retrying
from tidegate.domain.spec import Exponential, Fixed, Rule
from tidegate.domain.task_limits import TaskLimit, TimeLeft
from tidegate.policy.charge import UNCHARGED_LIMIT
from tidegate.policy.order import PENALTY_SECONDS
from tidegate.policy.retry import RetryTerms, decide, decide_requested_retry, expired

FENCE = Fence("task", 1)
TERMS = RetryTerms(max_attempts=5, backoff=Fixed(10.0))
NONE = Counters()


def failure(
    verdict: Verdict = Verdict.TRANSIENT, reason: Reason = Reason.SERVER_ERROR, **more: object
) -> Failure:
    return Failure(verdict, reason, **more)  # type: ignore[arg-type]


def judge(
    what: Failure, *, rule: Rule | None = None, terms: RetryTerms = TERMS, counters: Counters = NONE
) -> Dead | Retrying:
    outcome = decide(FENCE, what, rule, terms, counters, random.Random(7))
    assert isinstance(outcome, Dead | Retrying)
    return outcome


def test_a_transient_failure_is_charged_waits_and_goes_behind_new_tasks() -> None:
    outcome = judge(failure())
    assert isinstance(outcome, Retrying)
    assert outcome.charge is Charge.ATTEMPT
    assert 8 <= outcome.delay_seconds <= 12
    assert outcome.rank_offset == PENALTY_SECONDS
    assert judge(failure(), counters=Counters(attempts=2)).rank_offset == 3 * PENALTY_SECONDS


def test_the_last_attempt_carries_no_penalty_and_half_its_backoff() -> None:
    outcome = judge(failure(), counters=Counters(attempts=3))
    assert isinstance(outcome, Retrying)
    assert outcome.rank_offset == 0
    assert 4 <= outcome.delay_seconds <= 6


def test_the_last_attempt_still_waits_as_long_as_the_server_asked() -> None:
    outcome = judge(failure(wait_seconds=30.0), counters=Counters(attempts=3))
    assert isinstance(outcome, Retrying)
    assert 30 <= outcome.delay_seconds <= 36


def test_when_all_attempts_are_spent_the_task_is_dead_with_its_own_reason() -> None:
    outcome = judge(failure(), counters=Counters(attempts=4))
    assert isinstance(outcome, Dead)
    assert outcome.failure.reason is Reason.SERVER_ERROR
    assert "5 attempts" in outcome.why


@pytest.mark.parametrize("verdict", [Verdict.PERMANENT])
def test_a_permanent_failure_is_dead_at_once(verdict: Verdict) -> None:
    assert isinstance(judge(failure(verdict, Reason.CONTENT_POLICY)), Dead)


@pytest.mark.parametrize("reason", [Reason.RATE_LIMIT, Reason.OVERLOADED])
def test_a_fault_of_the_upstream_charges_nothing(reason: Reason) -> None:
    outcome = judge(failure(reason=reason, wait_seconds=2.0), terms=replace(TERMS, max_attempts=1))
    assert isinstance(outcome, Retrying)
    assert outcome.charge is Charge.PARK
    assert 2.0 <= outcome.delay_seconds <= 2.4
    assert outcome.rank_offset == 0


def test_a_large_request_that_may_succeed_later_delays_its_task_alone() -> None:
    large = failure(reason=Reason.TOO_LARGE, wait_seconds=60.0, status=413)
    outcome = judge(large, terms=replace(TERMS, upstream="u"))
    assert isinstance(outcome, Retrying)
    assert outcome.call_failure is None, "its gate does not move"
    assert 60 <= outcome.delay_seconds <= 72


def test_a_rate_limit_without_a_wait_waits_a_minute() -> None:
    outcome = judge(failure(reason=Reason.RATE_LIMIT))
    assert isinstance(outcome, Retrying)
    assert 60 <= outcome.delay_seconds <= 72


def test_a_rate_limit_that_asks_for_no_wait_backs_off_by_its_parks() -> None:
    terms = replace(TERMS, backoff=Exponential(base=1.0))
    waits = [
        judge(
            failure(reason=Reason.RATE_LIMIT, wait_seconds=0.0), terms=terms, counters=Counters(parks=parks)
        )
        for parks in (0, 3)
    ]
    assert 0.8 <= waits[0].delay_seconds <= 1.2
    assert 6.4 <= waits[1].delay_seconds <= 9.6


def test_parks_beyond_the_limit_are_charged_and_only_spent_attempts_end_the_task() -> None:
    limited = failure(reason=Reason.RATE_LIMIT)
    assert judge(limited, counters=Counters(parks=UNCHARGED_LIMIT - 1)).charge is Charge.PARK
    charged = judge(limited, counters=Counters(parks=UNCHARGED_LIMIT))
    assert isinstance(charged, Retrying)
    assert charged.charge is Charge.ATTEMPT
    dead = judge(limited, counters=Counters(parks=UNCHARGED_LIMIT, attempts=TERMS.max_attempts - 1))
    assert isinstance(dead, Dead)
    assert (dead.charge, dead.failure.reason) == (Charge.ATTEMPT, Reason.RATE_LIMIT)


def test_a_wait_for_an_upstream_may_outlast_the_total_timeout_but_not_the_deadline() -> None:
    soon = replace(TERMS, time_left=TimeLeft(total_timeout_seconds=5.0))
    what = failure(reason=Reason.RATE_LIMIT, wait_seconds=60.0)
    assert isinstance(judge(what, terms=soon), Retrying)
    dead = judge(
        what, terms=replace(TERMS, time_left=TimeLeft(total_timeout_seconds=1.0, deadline_seconds=5.0))
    )
    assert isinstance(dead, Dead)
    assert dead.why.startswith("deadline: its next run would start in")
    assert dead.failure.reason is Reason.DEADLINE


def test_a_retry_after_the_deadline_is_not_scheduled() -> None:
    for left, limit, fix in (
        (TimeLeft(total_timeout_seconds=5.0, deadline_seconds=60.0), "total timeout", "raise total_timeout="),
        (TimeLeft(total_timeout_seconds=60.0, deadline_seconds=5.0), "deadline", "give a later deadline="),
    ):
        dead = judge(failure(), terms=replace(TERMS, time_left=left))
        assert isinstance(dead, Dead)
        assert dead.failure.reason is Reason.DEADLINE
        assert "server_error" in dead.why
        assert dead.why.startswith(f"{limit}: its next run would start in")
        assert fix in dead.failure.message


def test_an_unknown_failure_follows_on_unknown() -> None:
    what = failure(Verdict.UNKNOWN, Reason.UNKNOWN)
    assert isinstance(judge(what), Retrying)
    assert isinstance(judge(what, terms=replace(TERMS, retry_unknown=False)), Dead)


def test_a_rule_has_its_own_wait_and_its_own_count() -> None:
    rule = Rule(ValueError, wait=Fixed(100.0), attempts=2)
    outcome = judge(failure(), rule=rule)
    assert isinstance(outcome, Retrying)
    assert 80 <= outcome.delay_seconds <= 120
    assert outcome.rule == rule.name
    spent = Counters(attempts=1, by_rule=((rule.name, 1),))
    assert isinstance(judge(failure(), rule=rule, counters=spent), Dead)


def test_a_discarding_rule_takes_precedence_over_everything() -> None:
    assert isinstance(judge(failure(reason=Reason.RATE_LIMIT), rule=Rule(ValueError, retry=False)), Dead)


def test_a_rule_that_counts_attempts_charges_rate_limits_too() -> None:
    outcome = judge(
        failure(reason=Reason.RATE_LIMIT, wait_seconds=1.0), rule=Rule(Reason.RATE_LIMIT, attempts=3)
    )
    assert outcome.charge is Charge.ATTEMPT


def test_a_retry_on_request_is_exact_when_uncharged_and_a_floor_when_charged() -> None:
    def ask(**more: object) -> Dead | Retrying:
        given = {"after_seconds": 30.0, "reason": "not yet", "charge": True} | more
        outcome = decide_requested_retry(FENCE, terms=TERMS, counters=NONE, rng=random.Random(1), **given)  # type: ignore[arg-type]
        assert isinstance(outcome, Dead | Retrying)
        return outcome

    free = ask(charge=False)
    assert isinstance(free, Retrying)
    assert (free.delay_seconds, free.charge) == (30.0, Charge.NOTHING)
    charged = ask()
    assert isinstance(charged, Retrying)
    assert 30 <= charged.delay_seconds <= 36


def test_an_expired_task_charges_nothing() -> None:
    assert expired(FENCE, TaskLimit.DEADLINE).charge is Charge.NOTHING


def test_a_call_that_our_own_gate_refused_is_not_counted_and_moves_no_gate() -> None:
    refused = failure(reason=Reason.OVERLOADED, wait_seconds=0.4, is_refusal=True)
    outcome = judge(refused, terms=replace(TERMS, upstream="u"), counters=Counters(parks=UNCHARGED_LIMIT))
    assert isinstance(outcome, Retrying)
    assert (outcome.charge, outcome.call_failure) == (Charge.WAIT, None)
    answered = judge(replace(refused, is_refusal=False), terms=replace(TERMS, upstream="u"))
    assert answered.call_failure is not None
