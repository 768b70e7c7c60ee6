"""Failures in which nothing was sent, as each client raises them: network failures, never in doubt."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace

import anthropic
import httpx
import httpx2
import openai
import pytest
import requests
import urllib3

from tidegate.calls.results import result_of_error
from tidegate.calls.settings import CallSettings
from tidegate.domain.failure import Reason, Verdict
from tidegate.providers.understand import understand

REQUEST = httpx2.Request("POST", "https://api.acme.test/v1")
POOL = urllib3.HTTPSConnectionPool("api.acme.test")


def caused(error, cause):
    error.__cause__ = cause
    return error


def stand_in(module, *names, base=Exception, **attributes):
    """Make an exception of a client that is not installed: its classes by name, the nearest first."""
    kind = base
    for name in reversed(names):
        kind = type(name, (kind,), {"__module__": module})
    error = kind("(text)")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def grpc_error(code, details):
    return stand_in("grpc.aio", "AioRpcError", _code=SimpleNamespace(name=code), _details=details)


def refused():
    return OSError(errno.ECONNREFUSED, "refused")


UNSENT = {
    "httpx pool": httpx.PoolTimeout("x"),
    "httpx connect": httpx.ConnectError("x"),
    "httpx connect timeout": httpx.ConnectTimeout("x"),
    "httpx proxy": httpx.ProxyError("x"),
    "httpx2 pool": httpx2.PoolTimeout("x"),
    "httpx2 connect timeout": httpx2.ConnectTimeout("x"),
    "openai over a pool": caused(openai.APITimeoutError(REQUEST), httpx2.PoolTimeout("x")),
    "openai over a connection": caused(openai.APIConnectionError(request=REQUEST), httpx2.ConnectError("x")),
    "anthropic over a pool": caused(anthropic.APITimeoutError(REQUEST), httpx2.PoolTimeout("x")),
    "aiohttp": stand_in("aiohttp.client_exceptions", "ClientConnectorError", "ClientOSError", base=OSError),
    "aiohttp timeout": stand_in(
        "aiohttp.client_exceptions", "ConnectionTimeoutError", "ServerTimeoutError", base=TimeoutError
    ),
    "requests timeout": requests.ConnectTimeout("x"),
    "requests": requests.ConnectionError(
        urllib3.exceptions.MaxRetryError(POOL, "/", urllib3.exceptions.NewConnectionError(POOL, "refused"))
    ),
    "urllib3": urllib3.exceptions.MaxRetryError(
        POOL, "/", urllib3.exceptions.ConnectTimeoutError(POOL, "timed out")
    ),
    "urllib3 pool": urllib3.exceptions.EmptyPoolError(POOL, "full"),
    "botocore": stand_in("botocore.exceptions", "EndpointConnectionError", "ConnectionError"),
    "botocore timeout": stand_in("botocore.exceptions", "ConnectTimeoutError", "ConnectionError"),
    "azure": stand_in("azure.core.exceptions", "ServiceRequestTimeoutError", "ServiceRequestError"),
    "grpc": grpc_error("UNAVAILABLE", "failed to connect to all addresses; last error: …"),
    "grpc dns": grpc_error("UNAVAILABLE", "DNS resolution failed for acme.test:443"),
    "python": refused(),
    "python dns": socket.gaierror(-2, "Name or service not known"),
}


@pytest.mark.parametrize("error", UNSENT.values(), ids=UNSENT)
def test_a_request_that_was_not_sent_is_a_network_failure_and_not_in_doubt(error):
    failure = understand(error, now=0.0)
    assert (failure.verdict, failure.reason) == (Verdict.TRANSIENT, Reason.NETWORK)
    assert failure.is_unsent
    assert result_of_error(error, CallSettings("acme"), seconds=1.0).is_in_doubt is False


SENT = {
    "httpx read timeout": httpx.ReadTimeout("x"),
    "httpx write": httpx2.WriteError("x"),
    "httpx protocol": httpx2.RemoteProtocolError("x"),
    "openai": caused(openai.APITimeoutError(REQUEST), httpx2.ReadTimeout("x")),
    "aiohttp": stand_in("aiohttp.client_exceptions", "ServerDisconnectedError", "ClientConnectionError"),
    "aiohttp timeout": stand_in("aiohttp.client_exceptions", "SocketTimeoutError", "ServerTimeoutError"),
    "requests": requests.ReadTimeout("x"),
    "requests reset": requests.ConnectionError(
        urllib3.exceptions.ProtocolError("aborted", ConnectionResetError(errno.ECONNRESET, "reset"))
    ),
    "grpc": grpc_error("UNAVAILABLE", "Socket closed"),
    "grpc deadline": grpc_error("DEADLINE_EXCEEDED", "Deadline Exceeded"),
    "python": ConnectionResetError(errno.ECONNRESET, "reset"),
}


@pytest.mark.parametrize("error", SENT.values(), ids=SENT)
def test_a_request_that_may_have_been_sent_is_in_doubt(error):
    failure = understand(error, now=0.0)
    assert failure.verdict is Verdict.TRANSIENT
    assert not failure.is_unsent
    assert result_of_error(error, CallSettings("acme"), seconds=1.0).is_in_doubt is True


@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        ("RESOURCE_EXHAUSTED", Verdict.TRANSIENT, Reason.RATE_LIMIT),
        ("UNAUTHENTICATED", Verdict.PERMANENT, Reason.AUTH),
        ("INVALID_ARGUMENT", Verdict.PERMANENT, Reason.INVALID_REQUEST),
        ("INTERNAL", Verdict.TRANSIENT, Reason.SERVER_ERROR),
        ("UNKNOWN", Verdict.UNKNOWN, Reason.UNKNOWN),
    ],
)
def test_a_grpc_errors_status_decides_its_meaning(code, verdict, reason):
    failure = understand(grpc_error(code, "(text)"), now=0.0)
    assert (failure.verdict, failure.reason) == (verdict, reason)
    blocking = stand_in("grpc._channel", "_InactiveRpcError", "RpcError")
    blocking._state = SimpleNamespace(code=SimpleNamespace(name=code), details="(text)")
    assert understand(blocking, now=0.0).reason is reason
