"""What a client asks of the model: the two request bodies, checked, counted and fingerprinted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from tidegate.testing.provider.refusals import Refusal, invalid_request

CHARACTERS_PER_TOKEN = 4


_BodyShape = TypeVar("_BodyShape", bound=msgspec.Struct)


def estimate_tokens(text: str) -> int:
    """Return the tokens of a text: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat or an embedding request, as far as the simulation looks at it."""

    model: str
    texts: tuple[str, ...]
    """Chat: a text for each message. Embeddings: a text for each input; tokens are written out as text."""
    tokens: int
    """Of all texts."""
    longest: int
    """Tokens that must fit the context window: the whole chat, or the longest embedding input."""
    content_hash: str
    """SHA-256 of the model and the messages or input. Other options do not change it."""
    param: Literal["messages", "input"]
    max_tokens: int | None = None
    stream: bool = False
    stream_usage: bool = False
    dimensions: int | None = None
    base64: bool = False


class _ContentPart(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_ContentPart] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


_Positive = Annotated[int, msgspec.Meta(ge=1)]


class _ChatBody(msgspec.Struct):
    model: str
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None


class _MessagesBody(msgspec.Struct):
    model: str
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    max_tokens: _Positive
    system: str | list[_ContentPart] = ""
    stream: bool = False


class _EmbeddingsBody(msgspec.Struct):
    model: str
    input: str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1, max_length=2048)]
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    encoding_format: Literal["float", "base64"] = "float"


def read_chat(body: bytes) -> Prompt | Refusal:
    """Read the body of a chat completion request."""
    found = _read(body, _ChatBody)
    if isinstance(found, Refusal):
        return found
    chat, raw = found
    texts = tuple(_text(message) for message in chat.messages)
    tokens = sum(estimate_tokens(text) for text in texts)
    return Prompt(
        model=chat.model,
        texts=texts,
        tokens=tokens,
        longest=tokens,
        content_hash=_fingerprint(chat.model, raw["messages"]),
        param="messages",
        max_tokens=chat.max_completion_tokens or chat.max_tokens,
        stream=bool(chat.stream),
        stream_usage=chat.stream_options is not None and chat.stream_options.include_usage,
    )


def read_messages(body: bytes) -> Prompt | Refusal:
    """Read the body of a request to Anthropic's messages interface."""
    found = _read(body, _MessagesBody)
    if isinstance(found, Refusal):
        return found
    wanted, raw = found
    system = _Message("system", wanted.system or None)
    texts = tuple(_text(message) for message in (system, *wanted.messages))
    tokens = sum(estimate_tokens(text) for text in texts)
    return Prompt(
        model=wanted.model,
        texts=texts,
        tokens=tokens,
        longest=tokens,
        content_hash=_fingerprint(wanted.model, [raw.get("system"), raw["messages"]]),
        param="messages",
        max_tokens=wanted.max_tokens,
        stream=wanted.stream,
    )


def read_embeddings(body: bytes) -> Prompt | Refusal:
    """Read the body of an embeddings request."""
    found = _read(body, _EmbeddingsBody)
    if isinstance(found, Refusal):
        return found
    wanted, raw = found
    inputs = _inputs(wanted.input)
    if inputs is None:
        return invalid_request("'input' must hold texts only, or tokens only.", param="input")
    counts = [estimate_tokens(item) if isinstance(item, str) else len(item) for item in inputs]
    return Prompt(
        model=wanted.model,
        texts=tuple(item if isinstance(item, str) else " ".join(map(str, item)) for item in inputs),
        tokens=sum(counts),
        longest=max(counts),
        content_hash=_fingerprint(wanted.model, raw["input"]),
        param="input",
        dimensions=wanted.dimensions,
        base64=wanted.encoding_format == "base64",
    )


def _read(body: bytes, shape: type[_BodyShape]) -> tuple[_BodyShape, dict[str, Any]] | Refusal:
    try:
        raw = msgspec.json.decode(body)
        return msgspec.convert(raw, shape), raw
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return invalid_request(f"We could not parse the JSON body of your request: {error}")


def _text(message: _Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content or () if part.text)


def _inputs(given: str | list[str | int | list[int]]) -> list[str | list[int]] | None:
    """Return a text or tokens for each input; None if they are mixed. A bare list of numbers is one input."""
    if isinstance(given, str):
        return [given]
    texts = [item for item in given if isinstance(item, str)]
    lists = [item for item in given if isinstance(item, list)]
    numbers = [item for item in given if isinstance(item, int)]
    if len(given) == len(numbers):
        return [numbers]
    if len(given) not in (len(texts), len(lists)):
        return None
    return [*texts, *lists]


def _fingerprint(model: str, content: Any) -> str:
    canonical = msgspec.json.encode([model, content], order="sorted")
    return hashlib.sha256(canonical).hexdigest()
