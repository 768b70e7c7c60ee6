"""What the task itself states decides first: verdicts that it raises, rules, classifiers."""

import asyncio
import math
import pickle

import pytest
from classify_support import (
    PERMANENT,
    TRANSIENT,
    ApiError,
    answered,
    chained,
    failure_of,
    meaning_of,
)

from stand_ins import NOW
from tidegate.domain.failure import Failure, Reason
from tidegate.domain.spec import Fixed, Rule
from tidegate.policy.classify import classify
from tidegate.verdicts import Permanent, RetryAfter, Transient


def test_a_task_may_state_the_verdict_itself():
    assert meaning_of(Permanent("no")) == (PERMANENT, Reason.REJECTED)
    assert meaning_of(Transient("later")) == (TRANSIENT, Reason.UNKNOWN)
    assert failure_of(Permanent("no")).evidence == "raised Permanent"
    failure = failure_of(RetryAfter(30))
    assert (failure.verdict, failure.reason, failure.wait_seconds) == (TRANSIENT, Reason.RATE_LIMIT, 30.0)


@pytest.mark.parametrize(
    ("seconds", "wait"), [(-1, 0.0), (0, 0.0), (1e9, 86_400.0), (math.inf, 86_400.0), (math.nan, None)]
)
def test_a_wait_that_a_task_asks_for_is_bounded(seconds, wait):
    assert failure_of(RetryAfter(seconds)).wait_seconds == wait


def test_a_users_own_subclass_of_retry_after_may_lack_its_seconds():
    class Own(RetryAfter):
        def __init__(self):
            Exception.__init__(self, "own")

    assert failure_of(Own()).wait_seconds is None
    assert meaning_of(Own()) == (TRANSIENT, Reason.RATE_LIMIT)


def test_a_stated_verdict_keeps_the_facts_behind_it_and_charges_as_stated():
    failure = failure_of(chained(Transient("busy"), cause=answered(429, None, {"Retry-After": "9"})))
    assert (failure.verdict, failure.reason) == (TRANSIENT, Reason.UNKNOWN)
    assert (failure.status, failure.wait_seconds) == (429, 9.0)
    failure = failure_of(chained(Permanent("no"), cause=answered(404)))
    assert (failure.verdict, failure.reason) == (PERMANENT, Reason.NOT_FOUND)


def test_a_stated_verdict_is_seen_through_a_wrapper():
    assert meaning_of(chained(RuntimeError(), cause=Permanent("no")))[0] is PERMANENT


class OwnRejection(Permanent):
    """One of a user's own, whose constructor knows nothing of ours."""

    def __init__(self) -> None:
        self.reason = 5


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (Permanent("no"), Reason.REJECTED),
        (Permanent("no", reason="content_policy"), Reason.CONTENT_POLICY),
        (Permanent("no", reason=Reason.INVALID_REQUEST), Reason.INVALID_REQUEST),
        (Permanent("no", reason="unknown"), Reason.REJECTED),
        (Permanent("no", reason="no such word"), Reason.REJECTED),
        (OwnRejection(), Reason.REJECTED),
        (chained(Permanent("no"), cause=answered(404)), Reason.NOT_FOUND),
        (chained(Permanent("no"), cause=answered(429)), Reason.REJECTED),
        (chained(Permanent("no", reason="quota"), cause=answered(404)), Reason.QUOTA),
        (pickle.loads(pickle.dumps(Permanent("no", reason="quota"))), Reason.QUOTA),
    ],
)
def test_a_task_that_raises_permanent_is_dead_with_the_reason_it_gives(raised, reason):
    assert meaning_of(raised) == (PERMANENT, reason)


# --- rules ---


def test_a_rule_changes_a_verdict_either_way():
    again, never = Rule(ApiError, wait=Fixed(1)), Rule(ApiError, retry=False)
    turned = classify(answered(400), rules=[again], now=NOW)
    assert (turned.failure.verdict, turned.failure.reason) == (TRANSIENT, Reason.INVALID_REQUEST)
    assert turned.rule is again
    assert turned.failure.evidence == "rule on ApiError (status 400)"
    turned = classify(answered(503, None, {"Retry-After": "9"}), rules=[never], now=NOW)
    assert (turned.failure.verdict, turned.failure.wait_seconds) == (PERMANENT, None)
    assert turned.rule is never


def test_a_rule_that_repeats_a_permanent_failure_keeps_the_servers_wait():
    exc = answered(400, None, {"Retry-After": "9"})
    assert failure_of(exc, rules=[Rule(ApiError)]).wait_seconds == 9.0


def test_the_first_rule_that_names_a_class_counts():
    rules = [Rule(KeyError), Rule(LookupError, retry=False), Rule(Exception)]
    assert [classify(exc(), rules=rules, now=NOW).rule for exc in (KeyError, IndexError, ValueError)] == rules
    assert classify(KeyboardInterrupt(), rules=rules, now=NOW).rule is None


def test_a_rule_may_name_a_reason_and_yields_to_one_that_names_a_class():
    by_reason, by_class = Rule(Reason.NOT_FOUND, attempts=2), Rule(ApiError, retry=False)
    found = classify(answered(404), rules=[by_reason], now=NOW)
    assert found.rule is by_reason
    assert found.failure.verdict is TRANSIENT
    assert classify(answered(404), rules=[by_reason, by_class], now=NOW).rule is by_class
    assert classify(answered(503), rules=[by_reason], now=NOW).rule is None


def test_a_rule_makes_an_unknown_failure_known():
    assert failure_of(ValueError(), rules=[Rule(ValueError)]).verdict is TRANSIENT
    assert failure_of(ValueError(), rules=[Rule(Reason.UNKNOWN, retry=False)]).verdict is PERMANENT


def test_a_broad_rule_does_not_change_a_verdict_that_the_task_raised():
    broad = Rule(Exception)
    assert classify(Permanent(), rules=[broad], now=NOW).rule is None
    assert meaning_of(Permanent(), rules=[broad])[0] is PERMANENT
    assert meaning_of(Transient(), rules=[Rule(Exception, retry=False)])[0] is TRANSIENT
    assert meaning_of(Permanent(), rules=[Rule(Reason.UNKNOWN)])[0] is PERMANENT
    assert classify(Transient(), rules=[broad], now=NOW).rule is broad
    assert meaning_of(Permanent(), rules=[Rule(Permanent)])[0] is TRANSIENT


def test_a_rule_applies_to_the_members_of_a_group():
    never = Rule(KeyError, retry=False)
    found = classify(ExceptionGroup("g", [TimeoutError(), KeyError("x")]), rules=[never], now=NOW)
    assert found.failure.verdict is PERMANENT
    assert found.rule is never
    whole = Rule(ExceptionGroup)
    assert classify(ExceptionGroup("g", [KeyError("x")]), rules=[whole, never], now=NOW).rule is whole


def test_a_class_that_answers_isinstance_with_an_error_matches_no_rule():
    class Moody(type):
        def __instancecheck__(cls, instance):
            raise RuntimeError("ask me tomorrow")

    odd = Moody("Odd", (Exception,), {})
    assert classify(ValueError(), rules=[Rule(odd), Rule(ValueError)], now=NOW).rule == Rule(ValueError)


# --- classifiers ---


def test_a_users_classifier_comes_before_our_own_evidence_and_after_rules():
    def ours(exc):
        return Failure(TRANSIENT, Reason.OVERLOADED, wait_seconds=1e9) if "busy" in str(exc) else None

    failure = failure_of(ApiError("busy", status_code=400), classifiers=[ours])
    assert (failure.verdict, failure.reason, failure.wait_seconds) == (TRANSIENT, Reason.OVERLOADED, 86_400.0)
    assert failure.evidence == "classifier ours"
    assert failure.message == "busy"
    assert meaning_of(ApiError("other", status_code=400), classifiers=[ours])[0] is PERMANENT
    assert (
        meaning_of(ApiError("busy"), classifiers=[ours], rules=[Rule(ApiError, retry=False)])[0] is PERMANENT
    )
    assert meaning_of(chained(RuntimeError(), cause=ApiError("busy")), classifiers=[ours])[0] is TRANSIENT


@pytest.mark.parametrize(
    "answer",
    [
        "nonsense",
        Failure("perhaps", Reason.UNKNOWN),
        Failure(PERMANENT, Reason.AUTH, message=7),
        Failure(PERMANENT, Reason.AUTH, status="soon"),
    ],
    ids=repr,
)
def test_a_classifier_that_returns_an_invalid_value_is_skipped(answer):
    assert meaning_of(answered(503), classifiers=[lambda exc: answer]) == (TRANSIENT, Reason.OVERLOADED)


@pytest.mark.parametrize("fault", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_a_classifier_that_raises_is_skipped(fault):
    def broken(exc):
        raise fault

    def sane(exc):
        return Failure(PERMANENT, Reason.AUTH)

    assert meaning_of(ValueError(), classifiers=[broken, sane]) == (PERMANENT, Reason.AUTH)
