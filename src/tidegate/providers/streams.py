"""Knows how the streams of each protocol end, so that an incomplete stream is not taken as complete.

A key in quotes cannot occur in the text that a model wrote, because JSON escapes quotes there. So the lines
are searched as bytes and need not be parsed.

Sources: openai 3.57.0 `_streaming.py`, `types/responses/`, `types/audio/`, `types/image_*_event.py`;
anthropic 2.14.0 `types/raw_message_*_event.py`; google-genai 3.6.1 `types.py` (FinishReason) and its
Interactions API; cohere 7.3.1 `types/v2chat_stream_response.py`, `types/streamed_chat_response.py`;
ollama/ollama `docs/api`; replicate 1.0.7 `stream.py`; the references of DashScope, Bedrock (ConverseStream,
InvokeModelWithResponseStream) and Text Generation Inference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MOST_LINES_TO_RECOGNISE = 50
"""If the first lines up to this number match no protocol, the protocol is unknown."""


@dataclass(frozen=True, slots=True)
class _Protocol:
    name: str
    mark: re.Pattern[bytes]
    """Matches a line that only this protocol has."""
    end: re.Pattern[bytes]
    """Matches the line without which the response is incomplete."""
    pack: str = ""
    """The only provider whose streams may have this protocol; empty for any."""


def _protocol(name: str, *, mark: bytes, end: bytes, pack: str = "") -> _Protocol:
    return _Protocol(name, re.compile(mark), re.compile(end), pack)


def _kinds(field: bytes, *kinds: bytes) -> bytes:
    return rb'"' + field + rb'"\s*:\s*"(?:' + b"|".join(kinds) + b")"


_DONE = rb"^data:\s*\[DONE\]\s*$"

_PROTOCOLS = (
    _protocol(
        "messages",  # Anthropic, also on Vertex and Bedrock
        mark=_kinds(b"type", b"message_start", b"content_block_start", b"content_block_delta"),
        end=_kinds(b"type", b'message_stop"'),
    ),
    _protocol(
        "responses",
        mark=_kinds(b"type", rb"response\.created", rb"response\.in_progress", rb"response\.output_"),
        end=_kinds(b"type", rb'response\.(?:completed|incomplete|failed|cancelled)"'),
    ),
    _protocol(
        # OpenAI, Azure, Mistral, Groq, Together, Fireworks, DeepSeek, OpenRouter, vLLM, Moonshot, Zhipu, TGI
        "chat",
        mark=rb'"choices"\s*:\s*\[',
        end=_DONE + rb'|"finish_reason"\s*:\s*"(?!null"|")',
    ),
    _protocol(
        "gemini",
        mark=rb'"candidates"\s*:\s*\[|"usageMetadata"\s*:\s*\{',
        end=rb'"finishReason"\s*:\s*"(?!FINISH_REASON_UNSPECIFIED)|"blockReason"\s*:\s*"',
    ),
    _protocol(
        "interactions",  # Gemini's other API
        mark=_kinds(b"event_type", rb"interaction\.(?:created|start)"),
        end=_DONE
        + b"|"
        + _kinds(b"event_type", rb"interaction\.complete")
        + b"|"
        + _kinds(b"status", b"requires_action", b"failed", b"cancelled", b"incomplete", b"completed"),
    ),
    _protocol(
        "cohere",
        mark=_kinds(b"type", b"message-start", b"content-delta"),
        end=_kinds(b"type", b'message-end"'),
    ),
    _protocol(
        "cohere 1",
        mark=_kinds(b"event_type", b"stream-start", b"text-generation"),
        end=_kinds(b"event_type", b"stream-end") + rb'|"is_finished"\s*:\s*true',
    ),
    _protocol("ollama", mark=rb'"model"\s*:.*"done"\s*:\s*(?:false|true)', end=rb'"done"\s*:\s*true'),
    _protocol("generate", mark=rb'"token"\s*:\s*\{.*"generated_text"', end=rb'"generated_text"\s*:\s*"'),
    _protocol(
        "dashscope",
        mark=rb'"output"\s*:\s*\{.*"finish_reason"',
        end=rb'"finish_reason"\s*:\s*"(?!null"|")',
    ),
    _protocol(
        "images",
        mark=_kinds(b"type", rb"image_(?:generation|edit)\.partial_image"),
        end=_kinds(b"type", rb'image_(?:generation|edit)\.completed"'),
    ),
    _protocol(
        "audio",
        mark=_kinds(b"type", rb"transcript\.text\.", rb"speech\.audio\."),
        end=_kinds(b"type", rb'(?:transcript\.text|speech\.audio)\.done"'),
    ),
    _protocol(
        "completions",  # Anthropic's older API
        mark=_kinds(b"type", b'completion"'),
        end=rb'"stop_reason"\s*:\s*"',
    ),
    _protocol("threads", mark=_kinds(b"object", rb"thread\."), end=_DONE),
    _protocol(
        "converse",  # Bedrock, whose frames name their events
        mark=rb"^:event-type messageStart$",
        end=rb"^:event-type messageStop$",
    ),
    _protocol(
        "invoke",  # Bedrock again: frames that hold the model's own events
        mark=rb"^:event-type chunk$",
        end=rb'"amazon-bedrock-invocationMetrics"|' + _kinds(b"type", b'message_stop"'),
    ),
    _protocol(
        "replicate",
        mark=rb"^event:\s*output\s*$",
        end=rb"^event:\s*(?:done|error)\s*$",
        pack="replicate",
    ),
)


class StreamEnd:
    """Reads the lines of one stream and looks for the end of its protocol.

    Args:
        pack: The name of the provider's pack.
    """

    def __init__(self, pack: str = "") -> None:
        self._candidates = tuple(each for each in _PROTOCOLS if each.pack in ("", pack))
        self._protocol: _Protocol | None = None
        self._lines = 0
        self._has_ended = False

    def feed(self, line: bytes) -> None:
        """Read the next line, without its line end."""
        if self._has_ended or not line:
            return
        self._lines += 1
        if self._protocol is None and self._lines <= _MOST_LINES_TO_RECOGNISE:
            self._protocol = next((each for each in self._candidates if each.mark.search(line)), None)
        if self._protocol is not None and self._protocol.end.search(line):
            self._has_ended = True

    @property
    def has_ended(self) -> bool:
        """Whether the end of a known protocol came."""
        return self._has_ended

    @property
    def missing(self) -> str:
        """The protocol whose end is missing; empty if it came or the protocol is unknown."""
        return "" if self._protocol is None or self._has_ended else self._protocol.name

    @property
    def is_empty(self) -> bool:
        """Whether there was no line at all."""
        return self._lines == 0
