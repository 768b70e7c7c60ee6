"""What a request is going to cost, read from its body before it is sent: model, prompt, longest answer.

Sources: the request bodies of OpenAI chat, Responses and embeddings, Anthropic messages, Gemini
`generateContent`, Bedrock Converse, Cohere, Ollama. How large a prompt is in tokens is only estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
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
_MOST_PARTS = 20_000
_LONGEST_BLOB = 512
"""A longer run of characters without a space is data, an image say, and no text."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a request names and holds."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    """0 where the request sets no limit."""


def sizes_of(body: object) -> Sizes:
    """Return what a request's body asks for. What cannot be read counts as nothing."""
    document = as_document(body)
    if document is None:
        return Sizes()
    model = document.get("model")
    characters = sum(len(text) for text in _texts(document))
    return Sizes(
        model=model[:200] if isinstance(model, str) else "",
        input_tokens=-(-characters // CHARACTERS_PER_TOKEN),
        output_tokens=_longest_answer(document),
    )


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
