"""Real SDKs, unchanged, through the transport, against the simulated provider."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import anthropic
import httpx
import httpx2
import openai
import pytest
from permits_in_memory import MemoryPermitSource

from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.domain.failure import Reason, Verdict
from tidegate.domain.usage import Dimension
from tidegate.errors import UpstreamParkedError
from tidegate.policy.classify import classify
from tidegate.testing.provider import POLICY_MARKER, ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio

TEXT = "The tide came in at dawn. It left at noon! Nobody saw it go."
QUICK = CallTimes(seconds=5, connect_seconds=2, idle_seconds=2)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as held:
        yield held


@pytest.fixture
def permits():
    return MemoryPermitSource()


@pytest.fixture
def serve(stack):
    async def start(**settings):
        return await stack.enter_async_context(SimulatedProvider(ProviderSettings(**settings)))

    return start


@pytest.fixture
def connect(stack, permits):
    """Make a real client of a provider, its SDK's retries left on, as users have it."""

    async def made(provider, kind="openai", *, times=QUICK, library=httpx2, **settings):
        transport = UpstreamTransport(
            permits,
            CallSettings(kind, times=times, **settings),
            None if library is httpx2 else library.AsyncHTTPTransport(),
        )
        http = await stack.enter_async_context(library.AsyncClient(transport=transport))
        if kind == "openai":
            return openai.AsyncOpenAI(base_url=provider.url, api_key="sk-own", http_client=http)
        return anthropic.AsyncAnthropic(
            base_url=provider.url.removesuffix("/v1"), api_key="sk-own", http_client=http
        )

    return made


async def chat(client, text=TEXT, **options):
    messages = [{"role": "user", "content": text}]
    return await client.chat.completions.create(model="m", messages=messages, **options)


async def message(client, text=TEXT, **options):
    messages = [{"role": "user", "content": text}]
    return await client.messages.create(model="m", messages=messages, max_tokens=50, **options)


async def drained(stream):
    return [piece async for piece in stream]


BROKEN = (httpx2.HTTPError, openai.APIError, anthropic.APIError)
CALLS = {"openai": chat, "anthropic": message}
both = pytest.mark.parametrize("kind", ["openai", "anthropic"])


@both
async def test_a_call_has_one_permit_settled_with_its_real_usage(serve, connect, permits, kind):
    provider = await serve(requests_per_minute=100, tokens_per_minute=10_000)
    answer = await CALLS[kind](await connect(provider, kind), TEXT)

    permit = permits.only
    assert permit.steps == ["acquire", "sending", "learn", "settle"]
    assert permit.request.model == "m"
    assert permit.request.input_tokens >= len(TEXT) // 4
    assert permit.end.failure is None
    assert permit.end.status == 200
    counts = answer.usage
    tokens = (
        (counts.prompt_tokens, counts.completion_tokens)
        if kind == "openai"
        else (
            counts.input_tokens,
            counts.output_tokens,
        )
    )
    assert (permit.end.usage.input_tokens, permit.end.usage.output_tokens) == tokens
    assert permit.end.usage.model == "m"
    assert permit.end.seconds > 0
    requests = next(seen for seen in permit.seen if seen.dimension is Dimension.REQUESTS)
    assert (requests.limit, requests.remaining) == (100.0, 99.0)


@both
async def test_a_stream_passes_piece_by_piece_and_settles_at_its_end(serve, connect, permits, kind):
    provider = await serve()
    client = await connect(provider, kind)
    extra = {"stream_options": {"include_usage": True}} if kind == "openai" else {}
    stream = await CALLS[kind](client, TEXT, stream=True, **extra)

    pieces = 0
    async for _ in stream:
        pieces += 1
        assert pieces > 3 or permits.only.end is None
    assert pieces > 5
    assert permits.only.end.failure is None
    assert permits.only.end.usage.input_tokens == -(-len(TEXT) // 4)
    assert permits.only.end.usage.output_tokens > 5
    assert permits.only.steps.count("settle") == 1


@both
async def test_a_stream_that_is_closed_early_settles_its_permit(serve, connect, permits, kind):
    provider = await serve(tokens_per_second=20)
    stream = await CALLS[kind](await connect(provider, kind), TEXT, stream=True)
    async for _ in stream:
        break
    await stream.close()

    assert permits.only.steps[-1] == "settle"
    assert permits.only.end.failure is None


@both
async def test_a_rate_limit_is_one_call_understood_and_not_repeated_by_the_sdk(serve, connect, permits, kind):
    provider = await serve(requests_per_minute=1, requests_burst=1)
    client = await connect(provider, kind)
    await CALLS[kind](client)
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as raised:
        await CALLS[kind](client)

    assert provider.ledger.count() == 2
    failure = permits.granted[1].end.failure
    assert (failure.verdict, failure.reason) == (Verdict.TRANSIENT, Reason.RATE_LIMIT)
    assert 50 < failure.wait_seconds <= 60
    assert not permits.granted[1].end.is_in_doubt
    assert classify(raised.value, now=0.0).failure.reason is Reason.RATE_LIMIT


@pytest.mark.parametrize(
    ("settings", "text", "reason"),
    [
        ({"overload_probability": 1.0}, TEXT, Reason.OVERLOADED),
        ({"overload_probability": 1.0, "overload_statuses": (529,)}, TEXT, Reason.OVERLOADED),
        ({"budget_calls": 0}, TEXT, Reason.QUOTA),
        ({"api_keys": ("sk-other",)}, TEXT, Reason.AUTH),
        ({"models": ("another",)}, TEXT, Reason.NOT_FOUND),
        ({"context_window": 2}, TEXT, Reason.CONTEXT_LENGTH),
        ({}, POLICY_MARKER, Reason.CONTENT_POLICY),
    ],
    ids=str,
)
@both
async def test_every_refusal_costs_one_call_and_reports_its_reason(
    serve, connect, permits, kind, settings, text, reason
):
    provider = await serve(**settings)
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)):
        await CALLS[kind](await connect(provider, kind), text)

    assert provider.ledger.count() == 1
    assert permits.only.end.failure.reason is reason


@both
async def test_an_sdk_that_retries_after_a_broken_connection_gets_the_first_error(
    serve, connect, permits, kind
):
    provider = await serve()
    await provider.begin_outage("reset")
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)):
        await CALLS[kind](await connect(provider, kind))

    assert provider.ledger.count() == 1
    end = permits.only.end
    assert (end.failure.reason, end.status, end.is_in_doubt) == (Reason.NETWORK, None, True)


async def test_a_refused_connection_counts_as_not_sent(serve, connect, permits):
    provider = await serve()
    await provider.begin_outage("refuse")
    with pytest.raises(openai.APIConnectionError):
        await chat(await connect(provider))

    assert permits.only.end.failure.reason is Reason.NETWORK
    assert not permits.only.end.is_in_doubt


@both
async def test_a_call_to_a_hanging_provider_ends_after_its_time_limit(serve, connect, permits, kind):
    provider = await serve()
    await provider.begin_outage("hang")
    client = await connect(provider, kind, times=CallTimes(seconds=0.2))
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        await CALLS[kind](client)

    assert provider.ledger.count() == 1
    assert permits.only.end.failure.reason is Reason.TIMEOUT
    assert permits.only.end.is_in_doubt


@both
async def test_a_stream_that_falls_silent_is_aborted(serve, connect, permits, kind):
    provider = await serve(tokens_per_second=0.1)
    stream = await CALLS[kind](
        await connect(provider, kind, times=CallTimes(seconds=5, idle_seconds=0.2)), stream=True
    )
    with pytest.raises(BROKEN) as raised:
        await drained(stream)

    assert classify(raised.value, now=0.0).failure.reason is Reason.TIMEOUT
    assert permits.only.end.failure.reason is Reason.TIMEOUT
    assert permits.only.end.is_in_doubt


@both
async def test_a_stream_may_last_longer_than_the_time_to_its_beginning(serve, connect, permits, kind):
    provider = await serve(tokens_per_second=40)
    client = await connect(provider, kind, times=CallTimes(seconds=0.25, idle_seconds=5))
    await drained(await CALLS[kind](client, stream=True))
    assert permits.only.end.failure is None


@both
async def test_a_stream_whose_connection_breaks_is_in_doubt(serve, connect, permits, kind):
    provider = await serve(tokens_per_second=20)
    stream = await CALLS[kind](await connect(provider, kind), stream=True)
    await anext(aiter(stream))
    await provider.stop()
    with pytest.raises(BROKEN) as raised:
        await drained(stream)

    assert classify(raised.value, now=0.0).failure.reason is Reason.NETWORK
    assert permits.only.end.failure.reason is Reason.NETWORK
    assert permits.only.end.is_in_doubt


@both
async def test_a_call_that_is_cancelled_settles_its_permit_in_doubt(serve, connect, permits, kind):
    provider = await serve()
    await provider.begin_outage("hang")
    client = await connect(provider, kind)
    calling = asyncio.create_task(CALLS[kind](client))
    async with asyncio.timeout(10):
        while not permits.granted or "sending" not in permits.only.steps:
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await permits.only.over.wait()

    assert permits.only.end.failure.reason is Reason.CANCELLED
    assert permits.only.end.is_in_doubt


@both
async def test_a_parked_upstream_is_not_called_and_its_task_waits_uncharged(serve, connect, permits, kind):
    provider = await serve()
    permits.refusal = UpstreamParkedError("parked", upstream="x", reason="rate_limit", wait_seconds=12.0)
    with pytest.raises((UpstreamParkedError, anthropic.APIConnectionError)) as raised:
        await CALLS[kind](await connect(provider, kind))

    assert provider.ledger.count() == 0
    assert permits.refused == 1
    failure = classify(raised.value, now=0.0).failure
    assert (failure.verdict, failure.reason, failure.wait_seconds) == ("transient", "rate_limit", 12.0)


@both
async def test_a_permits_key_is_sent_in_place_of_the_clients(serve, connect, permits, kind):
    provider = await serve(api_keys=("sk-pooled",))
    permits.api_key = "sk-pooled"
    await CALLS[kind](await connect(provider, kind))
    assert permits.only.end.status == 200


async def test_a_client_of_httpx_is_served_as_well(serve, permits):
    provider = await serve()
    transport = UpstreamTransport(permits, CallSettings("openai"), httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(transport=transport) as http:
        body = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}
        answer = await http.post(f"{provider.url}/chat/completions", json=body)
        assert answer.json()["usage"]["prompt_tokens"] == permits.only.end.usage.input_tokens
        streamed = http.stream("POST", f"{provider.url}/chat/completions", json={**body, "stream": True})
        async with streamed as response:
            lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert [permit.steps[-1] for permit in permits.granted] == ["settle", "settle"]


@both
async def test_a_sync_client_works_the_same_way(serve, permits, kind):
    provider = await serve(requests_per_minute=3, requests_burst=3)
    transport = UpstreamTransport(permits, CallSettings(kind, times=QUICK))

    def work():
        with httpx2.Client(transport=transport) as http:
            if kind == "openai":
                client = openai.OpenAI(base_url=provider.url, api_key="k", http_client=http)
                create, more = client.chat.completions.create, {}
            else:
                url = provider.url.removesuffix("/v1")
                client = anthropic.Anthropic(base_url=url, api_key="k", http_client=http)
                create, more = client.messages.create, {"max_tokens": 50}
            asked = {"model": "m", "messages": [{"role": "user", "content": TEXT}], **more}
            create(**asked)
            pieces = sum(1 for _ in create(**asked, stream=True))
            create(**asked)
            with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
                create(**asked)
            return pieces

    assert await asyncio.to_thread(work) > 5
    assert provider.ledger.count() == 4
    assert [permit.steps[-1] for permit in permits.granted] == ["settle"] * 4
    assert permits.granted[3].end.failure.reason is Reason.RATE_LIMIT


async def test_a_sync_transport_inside_is_run_in_threads(serve, permits):
    provider = await serve()
    transport = UpstreamTransport(permits, CallSettings("openai", times=QUICK), httpx2.HTTPTransport())

    def work():
        with httpx2.Client(transport=transport) as http:
            client = openai.OpenAI(base_url=provider.url, api_key="k", http_client=http)
            asked = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}
            client.chat.completions.create(**asked)
            return sum(1 for _ in client.chat.completions.create(**asked, stream=True))

    assert await asyncio.to_thread(work) > 5
    assert [permit.end.status for permit in permits.granted] == [200, 200]
