import asyncio
import errno
import json
import math
import pickle
import socket
import ssl
import urllib.error
from email.message import Message
from threading import Lock
from types import SimpleNamespace

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stand_ins import NOW, cases, complaint, exception_of, wait_complaint
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.spec import Fixed, Rule
from tidegate.policy.classify import Classified, classify
from tidegate.providers.waits import LONGEST_WAIT_SECONDS
from tidegate.verdicts import Permanent, RetryAfter, Transient

TRANSIENT, PERMANENT, UNKNOWN = Verdict.TRANSIENT, Verdict.PERMANENT, Verdict.UNKNOWN
# What generic code reaches; the rest needs to know the provider. Raise them, never lower them.
HTTP_CASES_REACHED = 197
EXCEPTION_CASES_REACHED = 120


class ApiError(Exception):
    """An SDK's error that keeps its facts as attributes."""

    def __init__(self, message="the call failed", **facts):
        super().__init__(message)
        vars(self).update(facts)


def answered(status, body=None, headers=()):
    return ApiError(
        response=SimpleNamespace(status_code=status, headers=dict(headers), text=json.dumps(body))
    )


def failure_of(exc, **options):
    return classify(exc, now=NOW, **options).failure


def meaning_of(exc, **options):
    failure = failure_of(exc, **options)
    return failure.verdict, failure.reason


# --- the provider cases ---


@pytest.mark.parametrize("case", cases("header"), ids=lambda case: case["id"])
def test_every_header_case_is_classified_with_its_wait(case):
    failure = failure_of(exception_of(case))
    expect = case["expect"]
    assert failure.verdict == expect["verdict"]
    assert failure.reason in [expect["reason"], *expect.get("reason_ok", ())]
    assert wait_complaint(expect, failure.wait_seconds, bound=LONGEST_WAIT_SECONDS) == ""


@pytest.mark.parametrize(
    ("kind", "reached"), [("http", HTTP_CASES_REACHED), ("exception", EXCEPTION_CASES_REACHED)]
)
def test_every_provider_case_keeps_its_meaning(kind, reached):
    complaints = {case["id"]: complaint(case, failure_of(exception_of(case))) for case in cases(kind)}
    wrong = {name: text for name, text in complaints.items() if text}
    passed = len(complaints) - len(wrong)
    report = "\n".join(f"{name}: {text}" for name, text in wrong.items())
    print(f"{kind}: {passed} of {len(complaints)}\n{report}")
    assert passed >= reached, report


# --- the HTTP answer ---


@pytest.mark.parametrize(
    ("status", "verdict", "reason"),
    [
        (400, PERMANENT, Reason.INVALID_REQUEST),
        (401, PERMANENT, Reason.AUTH),
        (402, PERMANENT, Reason.QUOTA),
        (403, PERMANENT, Reason.AUTH),
        (404, PERMANENT, Reason.NOT_FOUND),
        (408, TRANSIENT, Reason.TIMEOUT),
        (409, TRANSIENT, Reason.SERVER_ERROR),
        (413, PERMANENT, Reason.TOO_LARGE),
        (422, PERMANENT, Reason.INVALID_REQUEST),
        (425, TRANSIENT, Reason.SERVER_ERROR),
        (429, TRANSIENT, Reason.RATE_LIMIT),
        (499, TRANSIENT, Reason.CANCELLED),
        (500, TRANSIENT, Reason.SERVER_ERROR),
        (501, PERMANENT, Reason.INVALID_REQUEST),
        (502, TRANSIENT, Reason.SERVER_ERROR),
        (503, TRANSIENT, Reason.OVERLOADED),
        (504, TRANSIENT, Reason.TIMEOUT),
        (529, TRANSIENT, Reason.OVERLOADED),
        (599, TRANSIENT, Reason.SERVER_ERROR),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda status: ApiError(status_code=status),
        lambda status: ApiError(http_status=status),
        lambda status: ApiError(status=status),
        lambda status: ApiError(code=status),
        lambda status: ApiError(status_code=str(status)),
        lambda status: ApiError(response=SimpleNamespace(status_code=status)),
        lambda status: ApiError(response={"ResponseMetadata": {"HTTPStatusCode": status}}),
        lambda status: urllib.error.HTTPError("http://127.0.0.1/", status, "failed", Message(), None),
        lambda status: httpx2.HTTPStatusError(
            "failed", request=httpx2.Request("GET", "http://127.0.0.1/"), response=httpx2.Response(status)
        ),
    ],
    ids=[
        "status_code",
        "http_status",
        "status",
        "code",
        "digits",
        "response",
        "botocore",
        "urllib",
        "httpx2",
    ],
)
def test_a_status_is_found_in_the_attributes_of_every_sdk(build, status, verdict, reason):
    failure = failure_of(build(status))
    assert (failure.verdict, failure.reason, failure.status) == (verdict, reason, status)
    assert failure.evidence == f"status {status}"


@pytest.mark.parametrize("value", [7, 99, 600, 1006, True, 200, "active", "٤٢٩", -1, None, 4.29])
def test_a_number_that_is_not_an_http_status_is_no_evidence(value):
    assert meaning_of(ApiError(status=value, code=value)) == (UNKNOWN, Reason.UNKNOWN)


def test_a_billing_error_is_not_a_rate_limit():
    empty = answered(429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota"}})
    busy = answered(429, {"error": {"type": "requests", "code": "rate_limit_exceeded"}}, {"Retry-After": "2"})
    spent = answered(429, {"error": {"code": "credit_balance_exhausted"}}, {"Retry-After": "1"})
    assert meaning_of(empty) == (PERMANENT, Reason.QUOTA)
    assert meaning_of(busy) == (TRANSIENT, Reason.RATE_LIMIT)
    assert failure_of(busy).wait_seconds == 2.0
    assert meaning_of(spent) == (PERMANENT, Reason.QUOTA)
    assert failure_of(spent).wait_seconds is None
    assert failure_of(spent).evidence == "code credit_balance_exhausted"
    assert meaning_of(answered(429)) == (TRANSIENT, Reason.RATE_LIMIT)


def test_a_failure_carries_the_facts_of_the_response():
    exc = answered(
        503,
        {"error": {"code": "model_overloaded", "message": "busy"}},
        {"Retry-After": "8", "X-Request-Id": "req_1"},
    )
    failure = failure_of(exc)
    assert failure.status == 503
    assert failure.code == "model_overloaded"
    assert failure.request_id == "req_1"
    assert failure.wait_seconds == 8.0
    assert failure.message == "the call failed"
    assert failure.error_class == f"{__name__}.ApiError"
    assert "ApiError: the call failed" in failure.traceback


@pytest.mark.parametrize("name", ["request-id", "x-amzn-RequestId", "apim-request-id", "cf-ray"])
def test_a_request_id_is_found_under_its_many_names(name):
    assert failure_of(answered(500, None, {name: "r-1"})).request_id == "r-1"


def test_a_servers_wait_is_cut_to_a_day():
    assert failure_of(answered(429, None, {"Retry-After": "1000000000"})).wait_seconds == LONGEST_WAIT_SECONDS


def test_a_413_that_names_a_wait_is_temporary():
    failure = failure_of(answered(413, None, {"Retry-After": "60"}))
    assert (failure.verdict, failure.reason, failure.wait_seconds) == (TRANSIENT, Reason.TOO_LARGE, 60.0)


def test_a_throttling_code_counts_with_a_400_but_not_with_a_413():
    throttled = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    assert meaning_of(ApiError(response=throttled)) == (TRANSIENT, Reason.RATE_LIMIT)
    larger_than_the_bucket = answered(413, {"error": {"code": "rate_limit_exceeded"}})
    assert meaning_of(larger_than_the_bucket) == (PERMANENT, Reason.TOO_LARGE)


def test_words_in_a_message_are_not_evidence():
    body = {"error": {"message": "the prompt said insufficient_quota and context_length_exceeded"}}
    assert meaning_of(answered(500, body)) == (TRANSIENT, Reason.SERVER_ERROR)


def test_a_code_on_an_error_without_a_response_is_the_users_own():
    assert meaning_of(ApiError(code="insufficient_funds")) == (UNKNOWN, Reason.UNKNOWN)
    in_a_stream = ApiError(code="rate_limit_exceeded", body={"code": "rate_limit_exceeded"})
    assert meaning_of(in_a_stream) == (TRANSIENT, Reason.RATE_LIMIT)


def test_an_unread_response_body_is_not_read():
    class Response:
        status_code = 503
        headers = {}
        _content_consumed = False
        read = False

        @property
        def text(self):
            Response.read = True
            return ""

    assert meaning_of(ApiError(response=Response())) == (TRANSIENT, Reason.OVERLOADED)
    assert not Response.read


# --- classes and what is behind them ---


@pytest.mark.parametrize(
    ("exc", "verdict", "reason"),
    [
        (TimeoutError(), TRANSIENT, Reason.TIMEOUT),
        (ConnectionResetError(), TRANSIENT, Reason.NETWORK),
        (BrokenPipeError(), TRANSIENT, Reason.NETWORK),
        (socket.gaierror(-3, "Temporary failure in name resolution"), TRANSIENT, Reason.NETWORK),
        (OSError(errno.EHOSTUNREACH, "No route to host"), TRANSIENT, Reason.NETWORK),
        (OSError(errno.ENOSPC, "No space left on device"), UNKNOWN, Reason.UNKNOWN),
        (FileNotFoundError(2, "none"), UNKNOWN, Reason.UNKNOWN),
        (ssl.SSLError(1, "handshake"), TRANSIENT, Reason.NETWORK),
        (ssl.SSLCertVerificationError(1, "self-signed"), PERMANENT, Reason.NETWORK),
        (httpx2.ReadTimeout("slow"), TRANSIENT, Reason.TIMEOUT),
        (httpx2.ConnectError("refused"), TRANSIENT, Reason.NETWORK),
        (httpx2.UnsupportedProtocol("no scheme"), PERMANENT, Reason.INVALID_REQUEST),
        (asyncio.CancelledError(), TRANSIENT, Reason.CANCELLED),
        (ValueError("x"), UNKNOWN, Reason.UNKNOWN),
        (ApiError(), UNKNOWN, Reason.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_the_exception_class_decides_the_reason(exc, verdict, reason):
    assert meaning_of(exc) == (verdict, reason)


def test_the_evidence_names_what_decided():
    assert failure_of(httpx2.ReadTimeout("slow")).evidence == "class ReadTimeout"
    assert failure_of(ValueError()).evidence == "nothing known of ValueError"


def test_a_status_takes_precedence_over_the_class_that_carries_it():
    class Unauthorized(ConnectionError):
        status_code = 401

    assert meaning_of(Unauthorized()) == (PERMANENT, Reason.AUTH)


def chained(outer, cause=None, context=None):
    outer.__cause__, outer.__context__ = cause, context
    # Setting a cause suppresses the context, as `raise … from …` does.
    outer.__suppress_context__ = cause is not None
    return outer


def test_a_wrapped_error_is_classified_by_its_cause():
    inner = answered(429, {"error": {"code": "insufficient_quota"}})
    failure = failure_of(chained(RuntimeError("step failed"), cause=chained(KeyError("x"), cause=inner)))
    assert (failure.verdict, failure.reason) == (PERMANENT, Reason.QUOTA)
    assert failure.message == "step failed"
    assert failure.error_class == "RuntimeError"
    assert failure.evidence == "code insufficient_quota (in ApiError)"


def test_a_cause_with_a_code_takes_precedence_over_a_status_in_front_of_it():
    inner = answered(429, {"error": {"code": "insufficient_quota"}})
    assert meaning_of(chained(ApiError(status_code=500), cause=inner)) == (PERMANENT, Reason.QUOTA)


def test_an_error_that_was_handled_does_not_explain_the_next_one():
    first = answered(401, {"error": {"code": "invalid_api_key"}})
    assert meaning_of(chained(answered(503), context=first)) == (TRANSIENT, Reason.OVERLOADED)
    assert meaning_of(chained(TimeoutError(), context=first)) == (TRANSIENT, Reason.TIMEOUT)


def test_a_context_is_used_if_nothing_else_is_known_and_it_is_not_suppressed():
    outer = chained(KeyError("choices"), context=httpx2.ReadTimeout("slow"))
    assert meaning_of(outer) == (TRANSIENT, Reason.TIMEOUT)
    outer.__suppress_context__ = True
    assert meaning_of(outer) == (UNKNOWN, Reason.UNKNOWN)


def test_a_refused_certificate_is_seen_through_a_connection_error():
    outer = chained(httpx2.ConnectError("failed"), cause=ssl.SSLCertVerificationError(1, "self-signed"))
    assert meaning_of(outer) == (PERMANENT, Reason.NETWORK)


def test_chains_that_run_in_circles_end():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert meaning_of(first) == (UNKNOWN, Reason.UNKNOWN)
    first.__cause__ = first
    assert meaning_of(first) == (UNKNOWN, Reason.UNKNOWN)


def test_an_exit_from_the_function_is_unknown_and_named():
    failure = failure_of(SystemExit(500))
    assert (failure.verdict, failure.reason) == (UNKNOWN, Reason.UNKNOWN)
    assert failure.message == "exit code 500"
    assert failure.evidence == "SystemExit raised by the task function"
    for exc in (KeyboardInterrupt(), GeneratorExit(), chained(SystemExit(1), cause=TimeoutError())):
        assert meaning_of(exc) == (UNKNOWN, Reason.UNKNOWN)
        assert type(exc).__name__ in failure_of(exc).evidence


# --- groups ---


def test_the_member_with_the_longest_wait_decides_for_a_group():
    group = ExceptionGroup("g", [httpx2.ReadTimeout("slow"), answered(429, None, {"Retry-After": "30"})])
    failure = failure_of(group)
    assert (failure.verdict, failure.reason, failure.wait_seconds) == (TRANSIENT, Reason.RATE_LIMIT, 30.0)
    assert failure.error_class == "ExceptionGroup"
    assert failure.message == f"g (2 sub-exceptions): {__name__}.ApiError: the call failed"


def test_one_permanent_member_makes_a_group_permanent():
    group = ExceptionGroup("g", [TimeoutError(), ExceptionGroup("h", [ValueError(), answered(401)])])
    assert meaning_of(group) == (PERMANENT, Reason.AUTH)


def test_one_unknown_member_makes_a_group_unknown():
    assert meaning_of(ExceptionGroup("g", [TimeoutError(), ValueError()])) == (UNKNOWN, Reason.UNKNOWN)


def test_cancelled_members_of_a_group_do_not_count():
    group = BaseExceptionGroup("g", [asyncio.CancelledError(), answered(503)])
    assert meaning_of(group) == (TRANSIENT, Reason.OVERLOADED)
    assert meaning_of(BaseExceptionGroup("g", [asyncio.CancelledError()])) == (TRANSIENT, Reason.CANCELLED)


def test_a_group_is_classified_by_its_members_even_with_a_specific_context():
    group = chained(ExceptionGroup("g", [answered(401)]), context=TimeoutError())
    assert meaning_of(group) == (PERMANENT, Reason.AUTH)


def test_a_group_behind_a_wrapper_is_found():
    assert meaning_of(chained(RuntimeError(), cause=ExceptionGroup("g", [answered(503)]))) == (
        TRANSIENT,
        Reason.OVERLOADED,
    )


def test_groups_nested_beyond_reason_are_unknown():
    group = ExceptionGroup("g", [answered(503)])
    for _ in range(500):
        group = ExceptionGroup("g", [group])
    assert meaning_of(group) == (UNKNOWN, Reason.UNKNOWN)


# --- what the task raises ---


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


# --- nothing breaks it ---


class Hostile(Exception):
    """Every look at it fails."""

    def __getattribute__(self, name):
        raise SystemExit(f"no {name} for you")

    def __str__(self):
        raise RuntimeError("nor any words")


class HostileMapping(dict):
    def items(self):
        raise RuntimeError

    def get(self, *_):
        raise RuntimeError

    def keys(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "build",
    [
        Hostile,
        lambda: ApiError(response=HostileMapping(a=1), headers=HostileMapping(a=1), body=HostileMapping(a=1)),
        lambda: ApiError(status_code=503, body={"error": HostileMapping(code=1)}),
        lambda: ApiError("boom\x00tail\ud800", code="\x00", request_id="\ud800", status_code=500),
        lambda: type("Odd", (ApiError,), {"__qualname__": "Odd\ud800\x00"})(code="\ud800"),
        lambda: answered(500, {"error": {"code": "rate_limited\ud800\x00"}}, {"X-Request-Id": "\x00"}),
        lambda: ApiError(lock=Lock(), status=lambda: 500, headers=dict, response=lambda: None),
    ],
    ids=["hostile", "mapping", "nested", "text", "names", "codes", "callables"],
)
def test_an_exception_whose_every_attribute_raises_is_still_classified(build):
    found = classify(build(), rules=[Rule(KeyError)], now=NOW, classifiers=[lambda e: None])
    assert isinstance(found, Classified)
    assert found.failure.error_class
    failure = found.failure
    for text in (
        failure.message,
        failure.error_class,
        failure.code,
        failure.request_id,
        failure.evidence,
        failure.traceback,
    ):
        text.encode("utf-8")
        assert "\x00" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "Error", "code", "type", "status", "details", "metadata", "retry_after"]
            ),
            inner,
        )
    ),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        [
            "status_code",
            "http_status",
            "status",
            "code",
            "type",
            "body",
            "json_body",
            "details",
            "error",
            "headers",
            "response",
        ]
    ),
    JSON
    | st.sampled_from([200, 400, 429, 503, object(), SimpleNamespace(status_code=429, headers=[("a",)])]),
)


@settings(max_examples=150, deadline=None, database=None)
@given(ATTRIBUTES, st.text(), st.floats())
def test_no_attribute_makes_the_classifier_fail(attributes, message, now):
    failure = classify(ApiError(message, **attributes), now=now).failure
    assert not failure.evidence.startswith("could not be classified")
    assert failure.verdict is not PERMANENT or failure.wait_seconds is None
    assert failure.wait_seconds is None or 0 <= failure.wait_seconds <= LONGEST_WAIT_SECONDS


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
