"""What the simulated provider answers: chats, streams, embeddings, models."""

import base64
import math
import struct

import httpx2
import pytest
from provider_support import TEXT, chat, messages

pytestmark = pytest.mark.anyio


async def test_a_chat_is_answered_with_a_summary_and_its_usage(serve, http):
    provider = await serve()

    answer = (await chat(http, provider)).json()

    assert answer["object"] == "chat.completion"
    choice = answer["choices"][0]
    assert choice["message"]["content"] == "The tide came in at dawn. It left at noon!"
    assert choice["finish_reason"] == "stop"
    tokens_in, tokens_out = math.ceil(len("Summarise.") / 4) + math.ceil(len(TEXT) / 4), math.ceil(42 / 4)
    assert answer["usage"] == {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }


async def test_an_instruction_before_the_text_is_not_summarised(serve, http):
    provider = await serve()

    answer = (await chat(http, provider, "Sum up this page:\n\n潮水来了。它又走了。没人看见。")).json()

    assert answer["choices"][0]["message"]["content"] == "潮水来了。 它又走了。"


async def test_an_answer_is_cut_to_max_tokens(serve, http):
    provider = await serve()

    answer = (await chat(http, provider, max_tokens=4)).json()

    assert answer["choices"][0]["message"]["content"] == "The tide came…"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


async def test_parts_of_a_message_are_read_as_its_text(serve, http):
    provider = await serve()

    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts = [{"type": "text", "text": "High water. Low water."}, image]

    assert "High water. Low water." in (await chat(http, provider, parts)).text


async def test_a_streamed_answer_equals_a_whole_answer(serve, http):
    provider = await serve()
    whole = (await chat(http, provider)).json()

    streamed = await chat(http, provider, stream=True, stream_options={"include_usage": True})

    assert streamed.headers["content-type"] == "text/event-stream"
    events = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [httpx2.Response(200, content=event).json() for event in events]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    printed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert printed == whole["choices"][0]["message"]["content"]


async def test_a_stream_comes_piece_by_piece_and_is_billed_when_it_begins(serve, http):
    provider = await serve(tokens_per_second=0.01)
    body = {"model": "m", "messages": messages(), "stream": True}

    async with http.stream("POST", f"{provider.url}/chat/completions", json=body) as response:
        first = await anext(response.aiter_bytes())

    assert b'"role":"assistant"' in first
    assert b"[DONE]" not in first
    assert provider.ledger.summary().billed == 1


async def test_embeddings_have_length_one_and_can_be_packed(serve, http):
    provider = await serve()
    body = {"model": "e", "input": ["ebb and flow", "flow and ebb", "sand"], "dimensions": 8}

    plain = (await http.post(f"{provider.url}/embeddings", json=body)).json()
    body["encoding_format"] = "base64"
    packed = (await http.post(f"{provider.url}/embeddings", json=body)).json()

    vectors = [item["embedding"] for item in plain["data"]]
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 1, 1])
    assert vectors[0] == vectors[1] != vectors[2]
    unpacked = struct.unpack("<8f", base64.b64decode(packed["data"][2]["embedding"]))
    assert unpacked == pytest.approx(vectors[2])
    assert plain["usage"] == {"prompt_tokens": 3 + 3 + 1, "total_tokens": 7}


@pytest.mark.parametrize(("given", "count"), [([1, 2, 3], 1), ([[1, 2], [3]], 2), ("text", 1)])
async def test_embedding_inputs_may_be_tokens(serve, http, given, count):
    provider = await serve()

    answer = await http.post(f"{provider.url}/embeddings", json={"model": "e", "input": given})

    assert len(answer.json()["data"]) == count


async def test_models_and_health_are_served_and_are_no_calls(serve, http):
    provider = await serve(models=("small", "large"))

    listed = (await http.get(f"{provider.url}/models")).json()
    health = await http.get(provider.url.replace("/v1", "/healthz"))

    assert [model["id"] for model in listed["data"]] == ["small", "large"]
    assert health.status_code == 200
    assert provider.ledger.count() == 0
