"""Recognises responses with status 200 that are not a success: refusals, and failures in the body.

Sources: openai 3.57.0 `types/responses/response.py`; anthropic 2.14.0 `types/stop_reason.py`; google-genai
3.6.1 `types.py` (FinishReason, BlockedReason); the Bedrock Converse and Cohere Chat references.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.providers._bodies import Document, members
from tidegate.providers.meaning import (
    CONTENT_POLICY,
    CONTEXT_LENGTH,
    SERVER_ERROR,
    TIMEOUT,
    Finding,
    table,
)

_ENDINGS = table(
    (
        CONTENT_POLICY,
        (
            # OpenAI and Azure; Anthropic; Bedrock; Cohere
            "content_filter refusal guardrail_intervened content_filtered ERROR_TOXIC"
            # Gemini
            " SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY JAILBREAK"
            " IMAGE_PROHIBITED_CONTENT"
        ),
    ),
    (CONTEXT_LENGTH, "model_context_window_exceeded ERROR_LIMIT"),
    (TIMEOUT, "TIMEOUT expired"),
    (SERVER_ERROR, "ERROR"),
)


def ending_of(document: Document) -> Finding | None:
    """Return what a response's finish reason means; None for a normal end."""
    for word in _words(document):
        if isinstance(word, str) and (meaning := _ENDINGS.get(word)):
            return Finding(meaning, f"ended as {word}", word)
    return None


def _words(document: Document) -> Iterator[object]:
    for choice in members(document, "choices"):
        yield choice.get("finish_reason")
    for candidate in members(document, "candidates"):
        yield candidate.get("finishReason")
    for feedback in members(document, "promptFeedback"):
        yield feedback.get("blockReason")
    for details in members(document, "incomplete_details"):
        yield details.get("reason")
    for name in ("stop_reason", "stopReason", "finish_reason"):
        yield document.get(name)
    if document.get("object") == "batch":
        yield document.get("status")
