"""Manual calls, made with any client."""

from __future__ import annotations

import asyncio

import pytest
from permits_in_memory import MemoryPermitSource

from tidegate.calls.manual_call import manual_call
from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.usage import Dimension, Usage
from tidegate.errors import UpstreamParkedError
from tidegate.providers.requests import Sizes

pytestmark = pytest.mark.anyio


def call(permits, **settings):
    return manual_call(permits, CallSettings("acme", **settings), Sizes("m", 10, 20))


async def test_a_manual_call_settles_with_the_recorded_result():
    permits = MemoryPermitSource("sk-pooled")
    async with call(permits) as made:
        assert made.api_key == "sk-pooled"
        assert permits.only.steps == ["acquire", "sending"]
        made.headers({"x-ratelimit-limit-requests": "60"})
        made.used({"usage": {"input_tokens": 9, "output_tokens": 1}})
    permit = permits.only
    assert (permit.request.model, permit.request.input_tokens, permit.request.output_tokens) == ("m", 10, 20)
    assert permit.seen[0].dimension is Dimension.REQUESTS
    assert permit.end.usage == Usage(9, 1)
    assert (permit.end.failure, permit.end.is_in_doubt) == (None, False)


@pytest.mark.parametrize(("status", "believed"), [(None, 30.0), (200, 30.0), (429, None)])
async def test_only_the_wait_of_a_429_recorded_by_a_manual_call_counts(status, believed):
    permits = MemoryPermitSource()
    async with call(permits) as made:
        made.headers({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}, status)
    (seen,) = permits.only.seen
    assert (seen.remaining, seen.reset_seconds) == (0.0, believed)


async def test_an_exception_is_classified_and_passed_on():
    permits = MemoryPermitSource()
    with pytest.raises(ConnectionResetError):
        async with call(permits):
            raise ConnectionResetError
    assert permits.only.end.failure.reason is Reason.NETWORK
    assert permits.only.end.is_in_doubt


async def test_a_failure_that_is_not_raised_can_be_recorded():
    permits = MemoryPermitSource()
    async with call(permits) as made:
        made.failed(Failure(Verdict.TRANSIENT, Reason.RATE_LIMIT, status=429))
    assert (permits.only.end.failure.reason, permits.only.end.status) == (Reason.RATE_LIMIT, 429)


async def test_a_call_that_takes_too_long_is_aborted():
    permits = MemoryPermitSource()
    with pytest.raises(TimeoutError):
        async with call(permits, times=CallTimes(seconds=0.05)):
            await asyncio.Event().wait()
    assert permits.only.end.failure.reason is Reason.TIMEOUT


async def test_the_block_is_not_entered_while_the_upstream_is_parked():
    permits = MemoryPermitSource()
    permits.refusal = UpstreamParkedError("parked", upstream="acme", reason="quota", wait_seconds=None)
    with pytest.raises(UpstreamParkedError):
        async with call(permits):
            pytest.fail("entered")
