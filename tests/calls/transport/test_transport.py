"""What the transport does with each request and response, with a fake network."""

from __future__ import annotations

import gzip
import json
import logging

import httpx2
import pytest
from permits_in_memory import MemoryPermitSource
from transport_clients import (
    ASKED,
    URL,
    USAGE,
    Network,
    Pieces,
    client_with_transport,
    in_a_run,
    ok,
    stream_of,
)

from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.domain.failure import Reason
from tidegate.domain.spec import NO_LIMIT, Priority
from tidegate.domain.usage import Usage
from tidegate.errors import ConfigError, StoreUnavailableError, UsageError

pytestmark = pytest.mark.anyio


# --- before ---


async def test_a_permit_is_requested_on_behalf_of_the_run():
    permits = MemoryPermitSource()
    in_a_run(seconds=100, run=4)
    async with client_with_transport(Network(ok()), permits) as http:
        await http.post(URL, json=ASKED)
    request = permits.only.request
    assert (request.fence.run, request.tenant, request.priority) == (4, "acme", Priority.INTERACTIVE)
    assert (request.model, request.input_tokens, request.output_tokens) == ("m", 3, 9)
    assert 99 < request.max_wait_seconds <= 100


async def test_a_repeated_run_sends_the_same_idempotency_keys():
    async def keys(task_id, run):
        network = Network(ok())
        in_a_run(task_id, run=run)
        async with client_with_transport(network) as http:
            for content in ("one", "two", "one"):
                await http.post(URL, json={"input": content})
        return [request.headers["idempotency-key"] for request in network.requests]

    first = await keys("task a", 1)
    assert len(set(first)) == 3
    assert await keys("task a", 2) == first
    assert not set(await keys("task b", 1)) & set(first)


@pytest.mark.parametrize("how", ["multipart", "streamed"])
async def test_two_uploads_never_share_an_idempotency_key(how):
    def upload(content):
        if how == "multipart":
            return {"files": {"file": ("talk.mp3", content)}}
        return {"content": Pieces(content)}

    async def keys(run, *contents):
        network = Network(ok())
        in_a_run("task of uploads", run=run)
        async with client_with_transport(network) as http:
            for content in contents:
                await http.post(URL, **upload(content))
        return [request.headers["idempotency-key"] for request in network.requests]

    first = await keys(1, b"one", b"two")
    again = await keys(2, b"two")
    assert len({*first, *again}) == 3


async def test_the_users_own_idempotency_key_stays_and_reads_get_none():
    network = Network(ok())
    async with client_with_transport(network) as http:
        await http.post(URL, json=ASKED, headers={"Idempotency-Key": "mine"})
        await http.get(URL)
        await http.post(URL, json=ASKED)
        await http.post(URL, json=ASKED)
    keys = [request.headers.get("idempotency-key") for request in network.requests]
    assert keys[:2] == ["mine", None]
    assert keys[2] != keys[3]


async def test_no_idempotency_key_is_sent_if_it_is_turned_off():
    network = Network(ok())
    async with client_with_transport(network, idempotency_header="") as http:
        await http.post(URL, json=ASKED)
    assert "idempotency-key" not in network.requests[0].headers


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("authorization", "Bearer sk-pooled"),
        ("x-api-key", "sk-pooled"),
        ("api-key", "sk-pooled"),
        ("x-goog-api-key", "sk-pooled"),
    ],
)
async def test_the_permits_api_key_replaces_the_clients_own(header, value):
    network = Network(ok())
    async with client_with_transport(network, MemoryPermitSource("sk-pooled")) as http:
        await http.post(URL, json=ASKED, headers={header: "Bearer sk-own"})
    assert network.requests[0].headers[header] == value


async def test_time_limits_are_the_shortest_of_the_clients_ours_and_the_runs_remaining_time():
    network = Network(ok())
    async with client_with_transport(network) as http:
        await http.post(URL, json=ASKED, timeout=httpx2.Timeout(600, connect=2))
        in_a_run(seconds=1.0)
        await http.post(URL, json=ASKED, timeout=None)
    long, short = (request.extensions["timeout"] for request in network.requests)
    assert long == {"connect": 2, "read": 600, "write": 600.0, "pool": 600.0}
    assert all(0 < seconds <= 1.0 for seconds in short.values())


async def test_a_call_may_have_no_time_limits():
    network = Network(ok())
    async with client_with_transport(network, times=CallTimes(NO_LIMIT, NO_LIMIT, NO_LIMIT)) as http:
        await http.post(URL, json=ASKED, timeout=httpx2.Timeout(None, read=600))
    timeouts = network.requests[0].extensions["timeout"]
    assert timeouts == {"connect": None, "read": 600, "write": None, "pool": None}


async def test_a_call_is_not_sent_if_it_cannot_be_recorded_first():
    class Forgetful(MemoryPermitSource):
        async def acquire(self, request):
            permit = await super().acquire(request)

            async def mark_sending():
                raise StoreUnavailableError("gone")

            permit.mark_sending = mark_sending
            return permit

    permits, network = Forgetful(), Network(ok())
    async with client_with_transport(network, permits) as http:
        with pytest.raises(StoreUnavailableError):
            await http.post(URL, json=ASKED)
    assert network.requests == []
    assert permits.only.steps == ["acquire", "release"]


async def test_a_wait_for_the_clients_connections_moves_no_gate():
    permits = MemoryPermitSource()
    async with client_with_transport(Network(httpx2.PoolTimeout("all in use")), permits) as http:
        with pytest.raises(httpx2.PoolTimeout):
            await http.post(URL, json=ASKED)
    assert permits.only.steps == ["acquire", "sending", "release"]


# --- an SDK's own retries ---


async def test_only_a_retry_of_the_same_call_gets_the_first_error():
    network = Network(httpx2.ConnectError("refused"), ok())
    async with client_with_transport(network) as http:
        for count in ("0", "1", "2"):
            with pytest.raises(httpx2.ConnectError):
                await http.post(URL, json=ASKED, headers={"x-stainless-retry-count": count})
        assert len(network.requests) == 1
        assert (await http.post(URL, json=ASKED, headers={"x-stainless-retry-count": "0"})).is_success
        # Nothing failed before it, as far as is known: it is a call like any other.
        assert (await http.post(URL, json=ASKED, headers={"x-stainless-retry-count": "1"})).is_success


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
async def test_every_failed_response_asks_the_sdk_not_to_retry(status):
    async with client_with_transport(
        Network(httpx2.Response(status, headers={"x-should-retry": "true"}))
    ) as http:
        assert (await http.post(URL, json=ASKED)).headers["x-should-retry"] == "false"


# --- after ---


@pytest.mark.parametrize(
    ("status", "reason", "in_doubt"),
    [
        (429, Reason.RATE_LIMIT, False),
        (500, Reason.SERVER_ERROR, False),
        (504, Reason.TIMEOUT, True),
        (524, Reason.TIMEOUT, True),
    ],
)
async def test_a_failed_response_is_in_doubt_only_if_a_gateway_gave_up(status, reason, in_doubt):
    permits = MemoryPermitSource()
    async with client_with_transport(
        Network(httpx2.Response(status, headers={"Retry-After": "3"})), permits
    ) as http:
        await http.post(URL, json=ASKED)
    end = permits.only.end
    assert (end.status, end.failure.reason, end.failure.wait_seconds) == (status, reason, 3.0)
    assert end.is_in_doubt is in_doubt


@pytest.mark.parametrize(("status", "believed"), [(200, 30.0), (429, None)])
async def test_only_the_wait_of_a_429_counts(status, believed):
    permits = MemoryPermitSource()
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}
    async with client_with_transport(
        Network(httpx2.Response(status, headers=headers, json={})), permits
    ) as http:
        await http.post(URL, json=ASKED)
    (seen,) = permits.only.seen
    assert (seen.remaining, seen.reset_seconds) == (0.0, believed)


async def test_the_provider_in_the_settings_decides_what_a_code_means():
    answer = httpx2.Response(429, json={"error": {"code": "insufficient_quota"}})
    for provider, reason in (("dashscope", Reason.RATE_LIMIT), ("openai", Reason.QUOTA)):
        permits = MemoryPermitSource()
        async with client_with_transport(Network(answer), permits, provider=provider) as http:
            await http.post(URL, json=ASKED)
        assert permits.only.end.failure.reason is reason


async def test_an_error_behind_a_200_gets_the_status_it_means():
    permits = MemoryPermitSource()
    answer = httpx2.Response(200, json={"error": {"code": 429, "message": "slow"}})
    async with client_with_transport(Network(answer), permits, provider="openrouter") as http:
        response = await http.post(URL, json=ASKED)
    assert response.status_code == 429
    assert response.headers["x-should-retry"] == "false"
    assert permits.only.end.status == 200
    assert permits.only.end.failure.reason is Reason.RATE_LIMIT


async def test_an_error_inside_a_choice_behind_a_200_gets_the_status_it_means():
    permits = MemoryPermitSource()
    choice = {"index": 0, "finish_reason": "error", "error": {"code": 503, "message": "no provider"}}
    async with client_with_transport(
        Network(httpx2.Response(200, json={"choices": [choice]})), permits, provider="openrouter"
    ) as http:
        assert (await http.post(URL, json=ASKED)).status_code == 503
    assert permits.only.end.failure.reason is Reason.OVERLOADED


@pytest.mark.parametrize(
    "body", [{"error": None, "status": "completed"}, {"choices": [{"finish_reason": "content_filter"}]}]
)
async def test_a_response_that_is_not_an_error_counts_as_success_with_any_body(body):
    permits = MemoryPermitSource()
    async with client_with_transport(Network(ok(**body)), permits) as http:
        assert (await http.post(URL, json=ASKED)).status_code == 200
    assert permits.only.end.failure is None


async def test_a_compressed_response_is_read_and_reaches_the_client_unchanged():
    permits = MemoryPermitSource()
    body = gzip.compress(json.dumps({"usage": USAGE, "text": "x" * 5_000}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    async with client_with_transport(
        Network(httpx2.Response(200, headers=headers, stream=Pieces(body))), permits
    ) as http:
        response = await http.post(URL, json=ASKED)
        assert response.json()["text"] == "x" * 5_000
    assert permits.only.end.usage == Usage(7, 3)


async def test_a_raw_reader_gets_the_bytes_of_a_buffered_response():
    async with (
        client_with_transport(Network(httpx2.Response(500, stream=Pieces(b"no", b"pe")))) as http,
        http.stream("POST", URL, json=ASKED) as response,
    ):
        assert b"".join([piece async for piece in response.aiter_raw()]) == b"nope"


@pytest.mark.parametrize(
    "pieces",
    [
        [b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\ndata: [DONE]\n\n'],
        [b'data: {"usage": {"prompt_', b'tokens": 7, "completion_tokens": 3}}', b"\r\n\r\n"],
        [b'{"response": "a"}\n', b'{"prompt_eval_count": 7, "eval_count": 3}'],
        [
            b'data: {"choices": [], "usage": null}\n',
            b"nonsense\ndata: {usage\n" + b"x" * 300,
            b'\ndata: {"usage": {"input_tokens": 7, "output_tokens": 3}}\ndata: [DONE]',
        ],
    ],
    ids=["whole", "in pieces", "lines", "amid noise"],
)
async def test_the_usage_of_a_stream_is_found_with_any_split_into_pieces(pieces):
    permits = MemoryPermitSource()
    async with client_with_transport(Network(stream_of(*pieces)), permits) as http:
        assert (await http.post(URL, json=ASKED)).content == b"".join(pieces)
    assert permits.only.end.usage == Usage(7, 3)
    assert permits.only.end.failure is None


async def test_a_compressed_stream_is_passed_on_unread_and_plain_ones_are_asked_for():
    permits, network = (
        MemoryPermitSource(),
        Network(
            stream_of(
                gzip.compress(b'data: {"usage": {"prompt_tokens": 7}}\n'), **{"content-encoding": "gzip"}
            )
        ),
    )
    async with client_with_transport(network, permits) as http:
        response = await http.post(URL, json={**ASKED, "stream": True})
        assert response.content.startswith(b"data: ")
    assert permits.only.end.usage is None
    assert network.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'data: {"type": "error", "error": {"type": "overloaded_error"}}\n', Reason.OVERLOADED),
        (b'data: {"error": {"code": 502}}\n', Reason.SERVER_ERROR),
        (
            b'data: {"response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}}\n',
            Reason.RATE_LIMIT,
        ),
    ],
)
async def test_an_error_inside_a_stream_is_reported(line, reason):
    permits = MemoryPermitSource()
    async with client_with_transport(Network(stream_of(b'data: {"delta": "hi"}\n', line)), permits) as http:
        await http.post(URL, json=ASKED)
    assert permits.only.end.failure.reason is reason


async def test_the_response_is_returned_even_if_the_permit_cannot_be_settled(caplog):
    class Unsettled(MemoryPermitSource):
        async def acquire(self, request):
            permit = await super().acquire(request)

            async def settle(end):
                raise StoreUnavailableError("gone")

            permit.settle = settle
            return permit

    with caplog.at_level(logging.WARNING, "tidegate.calls"):
        async with client_with_transport(Network(ok()), Unsettled()) as http:
            assert (await http.post(URL, json=ASKED)).status_code == 200
    assert "could not be settled" in caplog.text


# --- set-up ---


def test_an_inner_transport_of_an_unknown_library_is_refused():
    with pytest.raises(ConfigError, match="not a transport of httpx2 or httpx"):
        UpstreamTransport(MemoryPermitSource(), CallSettings("acme"), object())


async def test_a_sync_client_inside_an_event_loop_is_refused():
    transport = UpstreamTransport(
        MemoryPermitSource(), CallSettings("acme"), httpx2.MockTransport(Network(ok()))
    )
    with pytest.raises(UsageError):
        httpx2.Client(transport=transport).post(URL, json=ASKED)


def test_no_time_limit_is_longer_than_the_runs_remaining_time():
    assert CallTimes().within(10) == CallTimes(10, 5, 10)
    assert CallTimes().within(float("inf")) == CallTimes()
