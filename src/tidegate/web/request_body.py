"""Reads the JSON body of a request, its Idempotency-Key, `Prefer: wait` and trace context."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from tidegate.context.trace import current_span
from tidegate.web.json_limits import has_more_items, is_deeper, repeated_member, structure_of
from tidegate.web.offload import Offload
from tidegate.web.problems import Problem
from tidegate.web.settings import WebSettings

T = TypeVar("T")

_KEY = re.compile(r'"((?:[^"\\]|\\["\\])*)"|([!#-~][!-~]*)')
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})", re.I | re.A)
_MAX_KEY_LENGTH = 255
_MAX_SHOWN = 80

_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x78\x9c": "deflate"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A high surrogate without a low one after it, or a low one without a high one before it.
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*+(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)


async def read_json(
    request: Request,
    kind: type[T],
    settings: WebSettings,
    offload: Offload,
    *,
    default: bytes = b"",
    items: int | None = None,
    values: int | None = None,
) -> T:
    """Return the JSON body of a request. The size and depth of the body are checked before it is parsed.

    Args:
        request: The request.
        kind: The type into which the body is decoded.
        settings: Limits.
        offload: Parses long bodies in a thread.
        default: The JSON to use if the body is empty.
        items: The most items in its one array; None if the type has no such array.
        values: The most values in the whole body; None for the limit of one task.

    Raises:
        Problem: The body is too large, too slow, not JSON, or not of this type.
    """
    _require_json(request)
    try:
        async with asyncio.timeout(settings.read_limit):
            body = await request.body()
    except TimeoutError:
        raise Problem("body-too-slow") from None
    data = body or default
    max_values = settings.value_limit if values is None else values
    return await offload.run(len(data), _parse, data, kind, settings.depth_limit, max_values, items)


def parse_task(body: msgspec.Raw, kind: type[T]) -> T:
    """Decode a part of a body that `read_json` has checked.

    Raises:
        Problem: The part is not of this type.
    """
    return _decode(bytes(body), kind)


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("media-type", f"the Content-Type is {media_type[:_MAX_SHOWN]}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        detail = f"Content-Encoding {encoding[:_MAX_SHOWN]} is not supported: send the body uncompressed"
        raise Problem("media-type", detail, headers={"Accept-Encoding": "identity"})


def _parse(data: bytes, kind: type[T], depth: int, values: int, items: int | None) -> T:
    structure = structure_of(data, values)
    if structure is None:
        raise Problem("too-many-values", f"the limit is {values:,} values", limit=values)
    if items is not None and has_more_items(structure, items):
        raise Problem("batch-too-large", f"the limit is {items:,}", limit=items)
    if is_deeper(structure, depth):
        raise Problem("too-deep", f"the limit is {depth} levels", limit=depth)
    value = _decode(data, kind)
    try:
        name = repeated_member(data.decode())
    except UnicodeDecodeError as error:
        raise Problem("json", f"the body is not UTF-8 at byte {error.start}") from error
    if name is not None:
        raise Problem("json", f"an object has the member {name[:_MAX_SHOWN]!r} twice: send each once")
    return value


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("json", _decoding_hint(data) or str(error) or type(error).__name__) from error


def _decoding_hint(data: bytes) -> str:
    """Return why the body cannot be read, if the parser's message would mislead; otherwise an empty text."""
    if not data:
        return "the body is empty"
    for mark, name in _COMPRESSED.items():
        if data.startswith(mark):
            return f"the body is compressed with {name}: send it uncompressed"
    if data.startswith(_UTF_16) or b"\x00" in data[:2]:
        return "the body is UTF-16 or UTF-32: send UTF-8"
    if data.startswith(_BYTE_ORDER_MARK):
        return "the body begins with a byte order mark: send UTF-8 without one"
    lone = _LONE_SURROGATE.search(data)
    if lone is not None:
        return (
            f"a string has half of a surrogate pair near byte {lone.end()}, which UTF-8 cannot encode: "
            "send both halves, or U+FFFD instead"
        )
    return ""


def trace_of_request(request: Request) -> dict[str, str]:
    """Return the options of an enqueue that let its task continue the trace of a request.

    If OpenTelemetry traces this server, its current span continues that trace, and the task continues the
    span.
    """
    parents = request.headers.getlist("traceparent")
    if len(parents) != 1 or current_span() is not None:
        return {}
    return {"traceparent": parents[0], "tracestate": ",".join(request.headers.getlist("tracestate"))}


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key of a request, or None.

    A quoted string, as in the draft standard, and a bare string, as most clients send it, are accepted.

    Raises:
        Problem: The request has several keys, or a key that cannot be used.
    """
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    match = _KEY.fullmatch(given[0].strip())
    key = "" if match is None else re.sub(r"\\(.)", r"\1", match[1] or match[2] or "")
    if len(given) > 1 or not 1 <= len(key) <= _MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        raise Problem("idempotency-key", f"use 1 to {_MAX_KEY_LENGTH} printable ASCII characters, once")
    return key


def requested_wait(request: Request, settings: WebSettings) -> float:
    """Return the seconds of `Prefer: wait` (RFC 7240), at most the limit; 0 without it."""
    match = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return 0.0 if match is None else min(float(match[1]), settings.wait_limit)
