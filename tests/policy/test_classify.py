"""What an exception means by its status, its codes, its class and what is behind it."""

import asyncio
import errno
import socket
import ssl
import urllib.error
from email.message import Message
from types import SimpleNamespace

import httpx2
import pytest
from classify_support import (
    PERMANENT,
    TRANSIENT,
    UNKNOWN,
    ApiError,
    answered,
    chained,
    failure_of,
    meaning_of,
)

from stand_ins import cases, complaint, exception_of, wait_complaint
from tidegate.domain.failure import Reason
from tidegate.errors import StoreBusyError, StoreUnavailableError
from tidegate.providers.waits import LONGEST_WAIT_SECONDS

# What generic code reaches; the rest needs to know the provider. Raise them, never lower them.
HTTP_CASES_REACHED = 197
EXCEPTION_CASES_REACHED = 120


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
    assert failure.error_class == f"{ApiError.__module__}.ApiError"
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


@pytest.mark.parametrize("error", [StoreUnavailableError("the server is away"), StoreBusyError("locked")])
def test_a_store_that_did_not_answer_is_no_fault_of_the_task(error):
    for raised in (error, chained(RuntimeError("no permit"), error)):
        assert meaning_of(raised) == (TRANSIENT, Reason.UNKNOWN)
        assert "the store did not answer" in failure_of(raised).evidence
