"""Reading what a request brings: its JSON body, its Idempotency-Key, its wish to wait."""

from __future__ import annotations

import asyncio
import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from tidegate.web.problems import Problem
from tidegate.web.settings import WebSettings
from tidegate.web.strict import has_more_items, is_deeper

T = TypeVar("T")

_KEY = re.compile(r'"((?:[^"\\]|\\["\\])*)"|([!#-~][!-~]*)')
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})", re.I | re.A)
_LONGEST_KEY = 255


async def read_json(
    request: Request,
    kind: type[T],
    settings: WebSettings,
    *,
    otherwise: bytes = b"",
    items: int | None = None,
) -> T:
    """Return a request's body as a value; its size and depth are known to be fit before it is parsed.

    Args:
        request: Whose.
        kind: What it must be.
        settings: Limits.
        otherwise: What an empty body stands for.
        items: How many its one array may hold; None: it has none to be counted.

    Raises:
        Problem: It is no such thing.
    """
    media_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem("media-type", f"it says {media_type[:80]}")
    try:
        async with asyncio.timeout(settings.read_limit):
            body = await request.body()
    except TimeoutError:
        raise Problem("body-too-slow") from None
    if items is not None and has_more_items(body, items):
        raise Problem("batch-too-large", f"the limit is {items:,}", limit=items)
    return parse(body or otherwise, kind, settings)


def parse(body: bytes | msgspec.Raw, kind: type[T], settings: WebSettings, *, at: str = "") -> T:
    """Return a value from JSON.

    Raises:
        Problem: It is nested too deeply, no JSON, or of another form.
    """
    data = bytes(body)
    if is_deeper(data, settings.depth_limit):
        raise Problem("too-deep", f"the limit is {settings.depth_limit} levels", limit=settings.depth_limit)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = str(error) or type(error).__name__
        raise Problem("json", fault, errors=[{"at": at, "detail": fault}] if at else ()) from error


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
    if len(given) > 1 or not 1 <= len(key) <= _LONGEST_KEY or not (key.isascii() and key.isprintable()):
        raise Problem("idempotency-key", f"use 1 to {_LONGEST_KEY} printable ASCII characters, once")
    return key


def wanted_wait(request: Request, settings: WebSettings) -> float:
    """Return the seconds a request wishes to wait for the end (RFC 7240), 0 if it does not."""
    match = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return 0.0 if match is None else min(float(match[1]), settings.wait_limit)
