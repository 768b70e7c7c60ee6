"""Which streams are complete and which are not, by protocol."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from tidegate.providers.aws_frames import AwsFrames
from tidegate.providers.requests import asks_for_stream
from tidegate.providers.streams import StreamEnd


def data(**document):
    return b"data: " + json.dumps(document).encode()


CHAT = data(object="chat.completion.chunk", choices=[{"index": 0, "delta": {}, "finish_reason": None}])
WHOLE = {
    "chat with a finish reason": [CHAT, data(choices=[{"delta": {}, "finish_reason": "length"}])],
    "chat with its last line": [CHAT, b"data: [DONE]\r"],
    "azure": [
        data(choices=[], prompt_filter_results=[]),
        data(choices=[{"finish_reason": "content_filter"}]),
    ],
    "responses": [data(type="response.created"), data(type="response.completed", response={})],
    "responses cut by a limit": [data(type="response.created"), data(type="response.incomplete")],
    "responses failed": [data(type="response.created"), data(type="response.failed")],
    "anthropic": [b"event: message_start", data(type="message_start"), data(type="message_stop")],
    "anthropic's older API": [
        data(type="completion", stop_reason=None),
        data(type="completion", stop_reason="stop"),
    ],
    "gemini": [
        data(candidates=[{"content": {}}]),
        data(candidates=[{"finishReason": "MAX_TOKENS"}], usageMetadata={}),
    ],
    "gemini, blocked": [data(usageMetadata={}, promptFeedback={"blockReason": "SAFETY"})],
    "gemini as a list": [b'[{ "candidates": [', b'  {"text": "hi"', b'  "finishReason": "STOP"', b"]"],
    "interactions": [data(event_type="interaction.created"), data(event_type="interaction.completed")],
    "cohere": [data(type="message-start"), data(type="message-end", delta={})],
    "cohere 1": [b'{"event_type":"stream-start"}', b'{"is_finished":true,"event_type":"stream-end"}'],
    "ollama": [b'{"model":"m","response":"a","done":false}', b'{"model":"m","done":true}'],
    "generate": [
        data(token={"text": "a"}, generated_text=None),
        data(token={"text": "b"}, generated_text="ab"),
    ],
    "dashscope": [
        data(output={"text": "a", "finish_reason": "null"}),
        data(output={"text": "ab", "finish_reason": "stop"}),
    ],
    "images": [data(type="image_generation.partial_image"), data(type="image_generation.completed")],
    "speech": [data(type="speech.audio.delta"), data(type="speech.audio.done")],
    "transcription": [data(type="transcript.text.delta"), data(type="transcript.text.done")],
    "threads": [data(object="thread.run"), b"data: [DONE]"],
}
"""The first line of each is one by which its protocol is known; the rest is its end."""


def watched(lines, pack=""):
    end = StreamEnd(pack)
    for line in lines:
        end.feed(line)
    return end


@pytest.mark.parametrize("lines", WHOLE.values(), ids=WHOLE)
def test_a_stream_with_its_protocols_end_is_complete(lines):
    assert watched(lines).missing == ""


@pytest.mark.parametrize(
    "lines",
    [lines for name, lines in WHOLE.items() if name != "gemini, blocked"],
    ids=[n for n in WHOLE if n != "gemini, blocked"],
)
def test_a_stream_without_its_protocols_end_is_incomplete(lines):
    until = 2 if lines[0].startswith(b"event:") else 1
    assert watched(lines[:until]).missing != ""


def test_replicates_events_end_by_name():
    assert watched([b"event: output", b"data: a", b"event: done"], "replicate").missing == ""
    assert watched([b"event: output", b"data: a"], "replicate").missing == "replicate"
    assert watched([b"event: output", b"data: a"], "openai").missing == ""


@pytest.mark.parametrize(
    "lines",
    [[], [b"data: hello"], [data(progress=0.3, done=False)], [b'{"line": 1}', b'{"line": 2}'], [b": ping"]],
    ids=["nothing", "words", "progress", "lines", "comment"],
)
def test_a_stream_of_an_unknown_protocol_is_not_checked(lines):
    assert watched(lines).missing == ""


def test_a_models_text_about_the_protocol_does_not_end_the_stream():
    quoted = data(choices=[{"delta": {"content": '"finish_reason": "stop"\ndata: [DONE]'}}])
    assert watched([CHAT, quoted]).missing == "chat"


# --- AWS's binary frames ---


def frame(payload, **headers):
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in ((f":{name.replace('_', '-')}", value) for name, value in headers.items())
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def lines_of(raw, size=7):
    frames = AwsFrames()
    return [line for at in range(0, len(raw), size) for line in frames.feed(raw[at : at + size])]


def test_bedrocks_converse_stream_ends_with_its_stop_event():
    start = frame(b'{"role":"assistant"}', event_type="messageStart", message_type="event")
    stop = frame(b'{"stopReason":"end_turn"}', event_type="messageStop", message_type="event")
    assert watched(lines_of(start)).missing == "converse"
    assert watched(lines_of(start + stop)).missing == ""


def test_bedrocks_invoked_models_end_inside_their_frames():
    def chunk(document):
        wrapped = {"bytes": base64.b64encode(json.dumps(document).encode()).decode()}
        return frame(json.dumps(wrapped).encode(), event_type="chunk", message_type="event")

    first, last = chunk({"generation": "a"}), chunk({"amazon-bedrock-invocationMetrics": {}})
    assert watched(lines_of(first)).missing == "invoke"
    assert watched(lines_of(first + last)).missing == ""


def test_an_exception_in_a_frame_is_an_error_line():
    raw = frame(b'{"message":"slow"}', exception_type="throttlingException", message_type="exception")
    (line,) = lines_of(raw)
    assert json.loads(line)["error"]["code"] == "throttlingException"


def test_bytes_that_are_not_frames_are_refused():
    with pytest.raises(ValueError, match="not a frame"):
        lines_of(b"data: {}\n\n" * 3)


# --- what was asked for ---


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        ("https://api.openai.com/v1/chat/completions", {}, b'{"stream": true}'),
        ("https://g.test/v1/models/gemini:streamGenerateContent?key=1", {}, b"{}"),
        ("https://g.test/v1/x?alt=sse", {}, b"{}"),
        ("https://bedrock.test/model/m/converse-stream", {}, b"{}"),
        ("https://bedrock.test/model/m/invoke-with-response-stream", {}, b"{}"),
        ("https://tgi.test/generate_stream", {}, b"{}"),
        ("https://dashscope.test/api/v1/generation", {"x-dashscope-sse": "enable"}, b"{}"),
        ("https://replicate.test/stream", {"accept": "text/event-stream"}, b""),
        ("http://127.0.0.1:11434/api/chat", {}, b'{"model": "m"}'),
    ],
    ids=["body", "path", "query", "converse", "invoke", "tgi", "header", "accept", "ollama"],
)
def test_a_request_asks_for_a_stream_in_many_ways(url, headers, body):
    assert asks_for_stream(url, headers, body)


@pytest.mark.parametrize(
    ("url", "headers", "body"),
    [
        ("https://api.openai.com/v1/chat/completions", {"accept": "*/*"}, b'{"stream": false}'),
        ("https://api.openai.com/v1/chat/completions", {}, rb'{"content": "\"stream\": true"}'),
        ("https://mcp.test/mcp", {"accept": "application/json, text/event-stream"}, b"{}"),
        ("http://127.0.0.1:11434/api/chat", {}, b'{"stream": false}'),
        ("https://api.openai.com/v1/audio/transcriptions", {}, None),
    ],
    ids=["declined", "quoted", "either", "ollama", "upload"],
)
def test_a_request_that_does_not_ask_for_a_stream_is_not_streamed(url, headers, body):
    assert not asks_for_stream(url, headers, body)
