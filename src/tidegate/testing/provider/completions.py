"""What the model says: a summary made of the prompt's own sentences, and vectors. The same every time."""

from __future__ import annotations

import array
import asyncio
import base64
import math
import re
import sys
import zlib
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from tidegate.testing.provider.messages import event_stream, json_response
from tidegate.testing.provider.prompts import CHARACTERS_PER_TOKEN, Prompt, estimate_tokens

_READ_CHARACTERS = 20_000
"""How far into a text the summary looks."""
_EMBEDDED_WORDS = 256
"""How many words of a text make its vector."""
_SENTENCES = 2
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_WORDS_AND_SPACES = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Completion:
    """What was generated for one prompt. The completion is rendered again for each call that gets it."""

    created_at: int
    tokens_out: int = 0
    text: str = ""
    cut_short: bool = False
    """Whether the limit on tokens ended the text."""
    vectors: tuple[tuple[float, ...], ...] = ()


async def generate(prompt: Prompt, *, max_tokens: int, dimensions: int, created_at: int) -> Completion:
    """Generate the answer to a prompt; lets other work run between vectors."""
    if prompt.param == "messages":
        last = next((text for text in reversed(prompt.texts) if text.strip()), "")
        text, cut_short = summarise(last, max_tokens * CHARACTERS_PER_TOKEN)
        return Completion(created_at, estimate_tokens(text), text, cut_short)
    vectors = []
    for text in prompt.texts:
        vectors.append(embed(text, dimensions))
        if len(vectors) % 32 == 0:
            await asyncio.sleep(0)
    return Completion(created_at, vectors=tuple(vectors))


def summarise(text: str, limit: int) -> tuple[str, bool]:
    """Return the first sentences of a text in at most `limit` characters, and whether they were cut.

    A first paragraph that ends with a colon is taken as an instruction and left out.
    """
    body = text[:_READ_CHARACTERS].strip()
    instruction, gap, rest = body.partition("\n\n")
    if gap and instruction.rstrip().endswith((":", "：")):
        body = rest
    sentences = [" ".join(part.split()) for part in _SENTENCE_END.split(body) if part.strip()]
    summary = " ".join(sentences[:_SENTENCES]) or "There is nothing to summarise."
    if len(summary) <= limit:
        return summary, False
    entry = summary[: limit - 1]
    return entry[: entry.rfind(" ") if " " in entry else None] + "…", True


def embed(text: str, dimensions: int) -> tuple[float, ...]:
    """Return a vector of length 1; texts with the same words get similar vectors (hashed bag of words)."""
    vector = [0.0] * dimensions
    for word in text[:_READ_CHARACTERS].casefold().split()[:_EMBEDDED_WORDS] or [""]:
        place = zlib.crc32(word.encode())
        vector[place % dimensions] += 1.0 if place & 0x8000_0000 else -1.0
    norm = math.hypot(*vector)
    # Words with opposite signs can share a place and cancel each other out.
    return tuple(value / norm for value in vector) if norm else (1.0, *vector[1:])


def words_in(text: str) -> list[str]:
    """Return a text in pieces of a word each, as it is streamed."""
    return _WORDS_AND_SPACES.findall(text)


def render(answer: Completion, prompt: Prompt, *, call_id: str, pause_seconds: float) -> Response:
    """Return the answer in the form this prompt asked for."""
    if prompt.param == "input":
        return _embeddings(answer, prompt)
    if prompt.stream:
        return event_stream(_stream(answer, prompt, f"chatcmpl-{call_id}"), pause_seconds)
    return _completion(answer, prompt, f"chatcmpl-{call_id}")


def _completion(answer: Completion, prompt: Prompt, completion_id: str) -> Response:
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = _choice(finish_reason=_finish(answer), message=message, logprobs=None)
    head = _head("chat.completion", answer, prompt, completion_id)
    return json_response(200, {**head, "choices": [choice], "usage": _usage(answer, prompt)})


def _stream(answer: Completion, prompt: Prompt, completion_id: str) -> tuple[bytes, ...]:
    deltas: list[dict[str, str]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words_in(answer.text)]
    choices = [_choice(finish_reason=None, delta=delta) for delta in deltas]
    choices.append(_choice(finish_reason=_finish(answer), delta={}))
    head = _head("chat.completion.chunk", answer, prompt, completion_id)
    events = [{**head, "choices": [choice]} for choice in choices]
    if prompt.stream_usage:
        events = [{**event, "usage": None} for event in events]
        events.append({**head, "choices": [], "usage": _usage(answer, prompt)})
    return (*(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events), b"data: [DONE]\n\n")


def _head(kind: str, answer: Completion, prompt: Prompt, completion_id: str) -> dict[str, object]:
    return {"id": completion_id, "object": kind, "created": answer.created_at, "model": prompt.model}


def _choice(*, finish_reason: str | None, **content: object) -> dict[str, object]:
    return {"index": 0, **content, "finish_reason": finish_reason}


def _embeddings(answer: Completion, prompt: Prompt) -> Response:
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, prompt.base64)}
        for index, vector in enumerate(answer.vectors)
    ]
    usage = {"prompt_tokens": prompt.tokens, "total_tokens": prompt.tokens}
    return json_response(200, {"object": "list", "data": data, "model": prompt.model, "usage": usage})


def _encoded(vector: tuple[float, ...], as_base64: bool) -> tuple[float, ...] | str:
    if not as_base64:
        return vector
    floats = array.array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


def _finish(answer: Completion) -> str:
    return "length" if answer.cut_short else "stop"


def _usage(answer: Completion, prompt: Prompt) -> dict[str, int]:
    tokens_in, tokens_out = prompt.tokens, answer.tokens_out
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
