"""Reading what a request brings: its JSON body, its Idempotency-Key, its wish to wait."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

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
    """Return a request's body as a value; how large and deep it is, is known before it is parsed.

    Args:
        request: Whose.
        kind: What it must be.
        settings: Limits.
        offload: Parses long bodies off the event loop.
        default: What an empty body stands for.
        items: How many its one array may hold; None: it has none to be counted.
        values: How many values it may hold in all; None: as many as one task.

    Raises:
        Problem: It is no such thing.
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
    """Return a part of a body that was read, whose size and depth are known to fit.

    Raises:
        Problem: It is of another form.
    """
    return _decode(bytes(body), kind)


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("media-type", f"it says {media_type[:_MAX_SHOWN]}")
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
        raise Problem("json", f"it is not UTF-8: byte {error.start}") from error
    if name is not None:
        raise Problem("json", f"an object has the member {name[:_MAX_SHOWN]!r} twice: send each once")
    return value


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("json", _decoding_hint(data) or str(error) or type(error).__name__) from error


def _decoding_hint(data: bytes) -> str:
    """Return why JSON cannot be read where the parser's own words mislead; empty if they do not."""
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
            f"a text has half of a surrogate pair near byte {lone.end()}, which no UTF-8 text can hold: "
            "send both halves, or U+FFFD in its place"
        )
    return ""


def idempotency_key(request: Request) -> str | None:
    """Return the Idempotency-Key of a request, if it has one.

    A quoted string as the draft standard says, or a bare one as most clients send it.

    Raises:
        Problem: It has several, or one that cannot be used.
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
    """Return the seconds a request wishes to wait for the end (RFC 7240), 0 if it does not."""
    match = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return 0.0 if match is None else min(float(match[1]), settings.wait_limit)
