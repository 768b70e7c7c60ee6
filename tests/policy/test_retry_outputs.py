"""Invalid output of a model is requested once more, and not in every attempt."""

from __future__ import annotations

import random

import msgspec
import pydantic
import pytest

from tidegate.domain.failure import Reason, Verdict
from tidegate.domain.outcome import Counters, Dead, Fence, Retrying
from tidegate.domain.spec import Rule, TaskSpec
from tidegate.policy.classify import classify
from tidegate.policy.retry import RetryTerms, decide
from tidegate.verdicts import Permanent


class Answer(pydantic.BaseModel):
    grade: int


def misfit(read):
    try:
        read()
    except Exception as error:
        return error
    raise AssertionError


MISFITS = {
    "pydantic": misfit(lambda: Answer.model_validate_json('{"grade": "good"}')),
    "pydantic, no JSON": misfit(lambda: Answer.model_validate_json('{"grade": ')),
    "msgspec": misfit(lambda: msgspec.json.decode(b'{"grade": "good"}', type=dict[str, int])),
    "jsonschema": type("ValidationError", (Exception,), {"__module__": "jsonschema.exceptions"})("no number"),
    "langchain": type("OutputParserException", (ValueError,), {"__module__": "langchain_core.exceptions"})(
        "no JSON"
    ),
}


def decided(error, counters, *, rules=(), max_attempts=5):
    found = classify(error, rules=rules, now=0.0)
    terms = RetryTerms.of(TaskSpec("f"), max_attempts=max_attempts)
    return decide(Fence("t", 1), found.failure, found.rule, terms, counters, random.Random(0))


@pytest.mark.parametrize("error", MISFITS.values(), ids=MISFITS)
def test_invalid_output_is_requested_at_most_twice(error):
    failure = classify(error, now=0.0).failure
    assert (failure.verdict, failure.reason) == (Verdict.TRANSIENT, Reason.INVALID_OUTPUT)
    assert failure.message
    first = decided(error, Counters())
    assert isinstance(first, Retrying)
    again = decided(error, Counters(attempts=1, by_rule=((first.rule, 1),)))
    assert isinstance(again, Dead)
    assert "invalid_output" in again.why


def test_the_limit_counts_only_failures_of_invalid_output():
    assert isinstance(decided(MISFITS["pydantic"], Counters(attempts=3)), Retrying)


def test_the_functions_own_rule_takes_precedence():
    rules = (Rule(Reason.INVALID_OUTPUT, attempts=4),)
    spent = Counters(attempts=2, by_rule=(("invalid_output", 2),))
    assert isinstance(decided(MISFITS["pydantic"], spent, rules=rules), Retrying)


def test_a_permanent_verdict_of_the_task_stands():
    error = Permanent("this form is not to be had")
    error.__cause__ = MISFITS["pydantic"]
    assert isinstance(decided(error, Counters()), Dead)


def test_a_json_error_of_unknown_origin_stays_unknown():
    error = misfit(lambda: msgspec.json.decode(b"{"))
    assert classify(error, now=0.0).failure.reason is Reason.UNKNOWN
