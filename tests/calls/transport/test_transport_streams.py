"""Streamed responses: which responses are streamed, and when one counts as complete."""

from __future__ import annotations

import asyncio

import httpx
import httpx2
import openai
import pytest
from permits_in_memory import MemoryPermitSource
from transport_clients import ASKED, URL, Network, Pieces, client_with_transport, stream_of

from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.transport import UpstreamTransport
from tidegate.domain.failure import Reason, Verdict
from tidegate.policy.classify import classify

pytestmark = pytest.mark.anyio

STREAMED = {**ASKED, "stream": True}
CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": null}]}\n\n'
END = b"data: [DONE]\n\n"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-pro:streamGenerateContent"


class Gated:
    """A stream whose second piece comes when it is let out."""

    def __init__(self, library, *pieces):
        class Stream(library.AsyncByteStream):
            async def __aiter__(_):
                yield pieces[0]
                await self.let_out.wait()
                for piece in pieces[1:]:
                    yield piece

        self.let_out = asyncio.Event()
        self.stream = Stream()


# --- what makes an answer a stream ---


@pytest.mark.parametrize(
    ("url", "body", "kind"),
    [
        (GEMINI, {"contents": []}, "application/json"),
        ("https://api.cohere.com/v1/chat", {"message": "hi", "stream": True}, "application/stream+json"),
        (URL, STREAMED, "application/json; charset=utf-8"),
    ],
    ids=["gemini", "cohere", "body"],
)
@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
async def test_a_requested_stream_passes_in_pieces_with_any_content_type(library, url, body, kind):
    gated = Gated(library, b'[{"text": "a"}\n', b"]")
    answer = library.Response(200, headers={"content-type": kind}, stream=gated.stream)
    transport = UpstreamTransport(
        MemoryPermitSource(),
        CallSettings("acme", times=CallTimes(seconds=5)),
        library.MockTransport(lambda _: answer),
    )
    async with (
        asyncio.timeout(10),
        library.AsyncClient(transport=transport) as http,
        http.stream("POST", url, json=body) as response,
    ):
        pieces = response.aiter_raw()
        assert await anext(pieces) == b'[{"text": "a"}\n'
        gated.let_out.set()
        assert [piece async for piece in pieces] == [b"]"]


@pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])
async def test_json_that_the_client_streams_is_not_buffered(library):
    gated = Gated(library, b'{"rows": [1,', b"2]}")
    answer = library.Response(200, headers={"content-type": "application/json"}, stream=gated.stream)
    transport = UpstreamTransport(
        MemoryPermitSource(), CallSettings("acme"), library.MockTransport(lambda _: answer)
    )
    async with (
        asyncio.timeout(10),
        library.AsyncClient(transport=transport) as http,
        http.stream("POST", URL, json=ASKED) as response,
    ):
        gated.let_out.set()
        assert await response.aread() == b'{"rows": [1,2]}'


def test_a_sync_client_that_streams_is_recognised_too():
    seen = []

    class Lines(httpx2.SyncByteStream):
        def __iter__(self):
            for line in (b'{"a": 1}\n', b'{"a": 2}\n'):
                seen.append(line)
                yield line

    answer = httpx2.Response(200, headers={"content-type": "application/json"}, stream=Lines())
    inner = type("Sync", (httpx2.BaseTransport,), {"handle_request": lambda _, __: answer})()
    transport = UpstreamTransport(MemoryPermitSource(), CallSettings("acme"), inner)
    with httpx2.Client(transport=transport) as http, http.stream("POST", URL, json=ASKED) as response:
        assert seen == []
        assert response.read() == b'{"a": 1}\n{"a": 2}\n'


async def test_an_error_with_a_length_is_read_whole_even_if_a_stream_was_requested():
    answer = httpx2.Response(200, json={"error": {"code": 429, "message": "slow"}})
    permits = MemoryPermitSource()
    async with client_with_transport(Network(answer), permits, provider="openrouter") as http:
        response = await http.post(URL, json=STREAMED)
    assert response.status_code == 429
    assert permits.only.end.failure.reason is Reason.RATE_LIMIT


# --- when an answer is whole ---


async def failed_call(answer, body=STREAMED, url=URL):
    permits = MemoryPermitSource()
    async with client_with_transport(Network(answer), permits) as http:
        with pytest.raises(httpx2.RemoteProtocolError) as raised:
            await http.post(url, json=body)
    return permits.only, classify(raised.value, now=0.0).failure


@pytest.mark.parametrize(
    "pieces",
    [
        [CHUNK],
        [],
        [b'data: {"type": "message_start", "message": {}}\n\n'],
        [b'data: {"type": "response.created"}\n\ndata: {"type": "response.output_text.delta"}\n\n'],
        [b'data: {"candidates": [{"content": {"parts": [{"text": "ha'],
        [b'{"model": "m", "response": "ha", "done": false}\n'],
    ],
    ids=["chat", "nothing at all", "messages", "responses", "gemini", "ollama"],
)
async def test_a_stream_without_its_end_is_a_failed_call_in_doubt(pieces):
    permit, failure = await failed_call(stream_of(*pieces))
    assert (permit.end.failure.reason, permit.end.is_in_doubt) == (Reason.NETWORK, True)
    assert permit.steps.count("settle") == 1
    assert (failure.verdict, failure.reason) == (Verdict.TRANSIENT, Reason.NETWORK)


async def test_a_stream_that_names_its_error_before_it_breaks_off_fails_with_that_error():
    permit, _ = await failed_call(stream_of(CHUNK, b'data: {"error": {"type": "overloaded_error"}}\n\n'))
    assert permit.end.failure.reason is Reason.OVERLOADED


async def test_a_json_answer_that_breaks_off_is_a_failed_call_in_doubt():
    answer = httpx2.Response(
        200, headers={"content-type": "application/json"}, stream=Pieces(b'{"choices": [{"mess')
    )
    permit, _ = await failed_call(answer, ASKED)
    assert (permit.end.failure.reason, permit.end.is_in_doubt) == (Reason.NETWORK, True)


@pytest.mark.parametrize("content", [b"", b'{"a": 1}\n{"a": 2}\n', b"plain"], ids=["empty", "lines", "words"])
async def test_a_complete_response_that_is_invalid_json_is_passed_on(content):
    answer = httpx2.Response(200, headers={"content-type": "application/json"}, stream=Pieces(content))
    permits = MemoryPermitSource()
    async with client_with_transport(Network(answer), permits) as http:
        assert (await http.post(URL, json=ASKED)).content == content
    assert permits.only.end.failure is None


async def test_a_client_that_closes_a_stream_early_has_made_a_successful_call():
    permits = MemoryPermitSource()
    async with (
        client_with_transport(Network(stream_of(CHUNK, CHUNK)), permits) as http,
        http.stream("POST", URL, json=STREAMED) as response,
    ):
        await anext(response.aiter_raw())
    assert permits.only.end.failure is None
    assert permits.only.end.is_in_doubt is False


async def test_an_sdk_gets_an_error_for_an_incomplete_response_only():
    async def text_of(*pieces):
        http = client_with_transport(Network(stream_of(*pieces)))
        async with openai.AsyncOpenAI(api_key="sk-own", base_url=URL, http_client=http) as client:
            stream = await client.chat.completions.create(model="m", messages=[], stream=True)
            return [chunk.choices[0].delta.content async for chunk in stream]

    assert await text_of(CHUNK, CHUNK, END) == ["half", "half"]
    with pytest.raises(openai.APIConnectionError) as raised:
        await text_of(CHUNK)
    assert "the stream is incomplete" in str(raised.value.__cause__)
    assert classify(raised.value, now=0.0).failure.reason is Reason.NETWORK
