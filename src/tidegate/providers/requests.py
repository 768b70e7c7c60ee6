"""Reads a request before it is sent: the model, the size of prompt and output, and whether it streams.

Sources: the request bodies of OpenAI chat, Responses and embeddings, Anthropic messages, Gemini
`generateContent`, Bedrock Converse, Cohere, Ollama. The tokens of a prompt are only estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidegate.providers._bodies import Document, as_document

CHARACTERS_PER_TOKEN = 4
"""A rough average over languages and models."""

_PROMPTS = ("messages", "input", "prompt", "contents", "system", "systemInstruction", "instructions", "tools")
_LONGEST_ANSWER = (
    ("max_completion_tokens",),
    ("max_output_tokens",),
    ("max_tokens",),
    ("generationConfig", "maxOutputTokens"),
    ("inferenceConfig", "maxTokens"),
    ("options", "num_predict"),
)
_STREAM_ASKED_FOR = re.compile(rb'"stream"\s*:\s*true')
_STREAM_DECLINED = re.compile(rb'"stream"\s*:\s*false')
_STREAMING_URL = re.compile(
    # Gemini and Vertex; Bedrock; Text Generation Inference
    r":streamGenerateContent|:streamRawPredict|/converse-stream|/invoke-with-response-stream"
    r"|/generate_stream|[?&]alt=sse\b"
)
_STREAMING_UNLESS_DECLINED = re.compile(r"/api/(?:chat|generate)(?:\?|$)")
"""Ollama streams unless the request declines it."""
_MODEL_URL = re.compile(
    r"/(?:chat/completions|completions|responses|messages|embeddings|rerank|images/generations"
    r"|audio/(?:transcriptions|translations|speech)|api/(?:chat|generate|embed))(?:\?|$)"
    r"|:(?:generateContent|streamGenerateContent|embedContent|predict|rawPredict)\b|/(?:converse|invoke)(?:-|\?|$)"
)
_OPERATIONS = (
    (re.compile(r"/embeddings|/api/embed|:(?:batch)?embedContent\b", re.IGNORECASE), "embeddings"),
    (re.compile(r"generateContent\b", re.IGNORECASE), "generate_content"),
    (re.compile(r"/chat/completions|/responses|/messages|/api/chat|/converse"), "chat"),
    (re.compile(r"/completions|/api/generate"), "text_completion"),
)
"""Patterns of addresses, and the operation by OpenTelemetry's name. The first one that matches counts."""
_NAMED_MODEL = re.compile(rb'^\s*\{.*"model"\s*:\s*"', re.DOTALL)
_MOST_PARTS = 20_000
_LONGEST_BLOB = 512
"""A longer run of characters without a space is data, such as an image, and not text."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The model and the sizes that a request names."""

    model: str = ""
    input_tokens: int = 0
    """An estimate of the prompt's tokens."""
    output_tokens: int = 0
    """The limit on the output's tokens; 0 if the request sets none."""
    operation: str = ""
    """What is asked of the model: `chat`, `embeddings`…; empty if the address does not show it."""


def sizes_of(body: object, url: str = "") -> Sizes:
    """Return the sizes that a request's body names. A part that cannot be read counts as nothing.

    Args:
        body: The request's body.
        url: The URL of the request, which shows the operation.
    """
    operation = _operation_of(url)
    document = as_document(body)
    if document is None:
        return Sizes(operation=operation)
    model = document.get("model")
    characters = sum(len(text) for text in _texts(document))
    return Sizes(
        model=model[:200] if isinstance(model, str) else "",
        input_tokens=-(-characters // CHARACTERS_PER_TOKEN),
        output_tokens=_longest_answer(document),
        operation=operation,
    )


def asks_for_stream(url: str, headers: Mapping[str, str], body: bytes | None) -> bool:
    """Return whether a request asks for a streamed response.

    Args:
        url: The request's URL.
        headers: The headers, by name in lower case.
        body: The request's body; None if it cannot be read before sending.
    """
    if _STREAM_ASKED_FOR.search(body or b"") or _STREAMING_URL.search(url):
        return True
    if headers.get("x-dashscope-sse", "").lower() == "enable":
        return True
    accepted = headers.get("accept", "")
    if "text/event-stream" in accepted and "json" not in accepted:
        return True
    return bool(body and _STREAMING_UNLESS_DECLINED.search(url) and not _STREAM_DECLINED.search(body))


def is_model_call(method: str, url: str, body: bytes | None) -> bool:
    """Return whether a request calls a model, which its path or a `model` in its body shows.

    Args:
        method: The request's method.
        url: The request's URL.
        body: The request's body; None if it cannot be read before sending.
    """
    if method != "POST":
        return False
    return _MODEL_URL.search(url) is not None or _NAMED_MODEL.search(body or b"") is not None


def _operation_of(url: str) -> str:
    path = url.partition("?")[0]
    return next((name for pattern, name in _OPERATIONS if pattern.search(path)), "")


def _longest_answer(document: Document) -> int:
    for path in _LONGEST_ANSWER:
        value: object = document
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _texts(document: Document) -> Iterator[str]:
    waiting: list[object] = [document.get(name) for name in _PROMPTS]
    for _ in range(_MOST_PARTS):
        if not waiting:
            return
        part = waiting.pop()
        if isinstance(part, str):
            if len(part) <= _LONGEST_BLOB or " " in part[:_LONGEST_BLOB]:
                yield part
        elif isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
