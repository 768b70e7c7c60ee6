"""Reads the usage of a call from its response. This module knows the field names of every provider.

Sources: the usage objects of OpenAI chat and Responses (which Groq, Together, Fireworks, DeepSeek, Mistral,
vLLM and TGI share), Anthropic messages, Gemini, Bedrock Converse, Cohere v2, Ollama, Voyage and Replicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from tidegate.domain.usage import Usage
from tidegate.providers._bodies import Document

_Paths = tuple[str, ...]
_LARGEST = 10**12


@dataclass(frozen=True, slots=True)
class _Shape:
    """The dotted paths of one provider's token counts. The counts of `input` and `output` are added up."""

    input: _Paths
    output: _Paths
    cached: _Paths = ()
    """The first path that exists is used, also for the next two fields."""
    cache_write: _Paths = ()
    reasoning: _Paths = ()


_SHAPES = (
    # OpenAI chat and its compatibles; DeepSeek names the cached part differently
    _Shape(
        ("usage.prompt_tokens",),
        ("usage.completion_tokens",),
        ("usage.prompt_tokens_details.cached_tokens", "usage.prompt_cache_hit_tokens"),
        ("usage.prompt_tokens_details.cache_write_tokens",),
        ("usage.completion_tokens_details.reasoning_tokens",),
    ),
    # OpenAI Responses, and DashScope. Only Anthropic counts cached tokens separately from its input.
    _Shape(
        ("usage.input_tokens", "usage.cache_read_input_tokens", "usage.cache_creation_input_tokens"),
        ("usage.output_tokens",),
        ("usage.cache_read_input_tokens", "usage.input_tokens_details.cached_tokens"),
        ("usage.cache_creation_input_tokens", "usage.input_tokens_details.cache_write_tokens"),
        ("usage.output_tokens_details.reasoning_tokens", "usage.output_tokens_details.thinking_tokens"),
    ),
    # Gemini and Vertex: reasoning tokens are counted separately from the text
    _Shape(
        ("usageMetadata.promptTokenCount", "usageMetadata.toolUsePromptTokenCount"),
        ("usageMetadata.candidatesTokenCount", "usageMetadata.thoughtsTokenCount"),
        ("usageMetadata.cachedContentTokenCount",),
        (),
        ("usageMetadata.thoughtsTokenCount",),
    ),
    # Bedrock Converse: cached tokens are counted separately from the input
    _Shape(
        ("usage.inputTokens", "usage.cacheReadInputTokens", "usage.cacheWriteInputTokens"),
        ("usage.outputTokens",),
        ("usage.cacheReadInputTokens",),
        ("usage.cacheWriteInputTokens",),
    ),
    # Cohere v2
    _Shape(("usage.tokens.input_tokens",), ("usage.tokens.output_tokens",), ("usage.cached_tokens",)),
    _Shape(("usage.billed_units.input_tokens",), ("usage.billed_units.output_tokens",)),
    # Ollama
    _Shape(("prompt_eval_count",), ("eval_count",)),
    # Replicate
    _Shape(("metrics.input_token_count",), ("metrics.output_token_count",)),
    # Voyage, and embeddings generally
    _Shape(("usage.total_tokens",), ()),
)
_HOLDERS = ("", "message", "response", "x_groq", "delta")
"""The fields in which pieces of a stream keep what a complete response has at its top level."""


def usage_of(document: Document) -> Usage | None:
    """Return the usage in a response or a piece of a stream; None if it states none."""
    for holder in _holders(document):
        for shape in _SHAPES:
            counted = _counted(holder, shape)
            if counted is not None:
                return replace(
                    counted,
                    model=_text(holder, "model") or _text(holder, "modelVersion"),
                    tier=_text(holder, "service_tier") or _text(_at(holder, "usage"), "service_tier"),
                    cost_usd=_money(_at(holder, "usage.cost")),
                )
    return None


def later(known: Usage | None, new: Usage | None) -> Usage | None:
    """Return the usage after one more piece of a stream.

    The counts of a piece are totals and replace earlier counts.
    """
    if known is None or new is None:
        return new or known
    changes = {field.name: getattr(new, field.name) for field in fields(Usage)}
    return replace(known, **{name: value for name, value in changes.items() if value})


def _holders(document: Document) -> Iterator[Document]:
    for name in _HOLDERS:
        holder = document if not name else document.get(name)
        if isinstance(holder, dict):
            yield holder


def _counted(holder: Document, shape: _Shape) -> Usage | None:
    if all(_count(holder, path) is None for path in (*shape.input[:1], *shape.output[:1])):
        return None
    return Usage(
        input_tokens=_sum(holder, shape.input),
        output_tokens=_sum(holder, shape.output),
        cached_tokens=_first(holder, shape.cached),
        cache_write_tokens=_first(holder, shape.cache_write),
        reasoning_tokens=_first(holder, shape.reasoning),
    )


def _sum(holder: Document, paths: _Paths) -> int:
    return sum(_count(holder, path) or 0 for path in paths)


def _first(holder: Document, paths: _Paths) -> int:
    return next((count for path in paths if (count := _count(holder, path)) is not None), 0)


def _count(holder: Document, path: str) -> int | None:
    value = _at(holder, path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return None
    return int(value)


def _at(holder: object, path: str) -> object:
    for name in path.split("."):
        holder = holder.get(name) if isinstance(holder, dict) else None
    return holder


def _text(holder: object, name: str) -> str:
    value = _at(holder, name)
    return value[:200] if isinstance(value, str) else ""


def _money(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST:
        return ""
    return f"{value:.12f}".rstrip("0").rstrip(".")
