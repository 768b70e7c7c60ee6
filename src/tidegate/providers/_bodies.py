"""Reads a provider's error body, with any nesting: its inner error, its codes, its text.

Bodies are foreign data: these functions return what they can read and ignore the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Document = dict[str, Any]

_LONGEST_BODY = 1_000_000
_CODE_LENGTH = 200


def as_document(body: object) -> Document | None:
    """Return the body as one JSON object; None if it is no JSON object.

    Accepts the object itself, its JSON as text or bytes, or a list with the object as its first member
    (streaming endpoints wrap errors like this).
    """
    if isinstance(body, bytes | bytearray):
        body = bytes(body[:_LONGEST_BODY]).decode("utf-8", "replace")
    if isinstance(body, str):
        body = _parsed(body)
    if isinstance(body, list | tuple) and body:
        body = body[0]
    try:
        return dict(body) if isinstance(body, Mapping) else None
    except Exception:
        # Reading a foreign mapping class can raise anything.
        return None


def error_part(document: Document) -> Document:
    """Return the inner error of `{"error": {…}}` and similar forms, else the document itself.

    OpenRouter puts the error of the provider behind it into `choices[].error`. Cloudflare's gateways put a
    list of errors into `errors`.
    """
    for name in ("error", "Error"):
        if isinstance(inner := document.get(name), dict):
            return inner
    for choice in members(document, "choices"):
        if isinstance(inner := choice.get("error"), dict):
            return inner
    listed = members(document, "errors") if document.get("success") is False else iter(())
    return next(listed, document)


def is_error(document: Document) -> bool:
    """Return whether a document is an error, with any HTTP status.

    Z.ai and Cloudflare's gateways answer 200 with `{"success": false, "code": 500}`.
    """
    if document.get("error") or document.get("status") == "failed" or error_part(document) is not document:
        return True
    return document.get("success") is False and any(document.get(name) for name in ("code", "errors"))


def meant_status(document: Document) -> int | None:
    """Return the real status of an error in a 200 response; None if its code is not an HTTP status."""
    code = error_part(document).get("code")
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else None


def members(document: Document, name: str) -> Iterator[Document]:
    """Yield the objects in the field `name`, which may be one object or a list."""
    value = document.get(name)
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def message_text(document: Document) -> str:
    """Return the error's message for people, or an empty text."""
    error = error_part(document)
    for value in (
        error.get("message"),
        error.get("Message"),
        error.get("msg"),
        error.get("detail"),
        document.get("error"),
    ):
        if isinstance(value, str):
            return value
    return ""


def codes(document: Document) -> Iterator[str]:
    """Yield the machine-readable codes of the body, the most specific first."""
    error = error_part(document)
    for details in members(error, "details"):
        yield from _words(details, "error_code", "reason")
    for inner in members(error, "innererror"):
        yield from _words(inner, "code")
    for metadata in members(error, "metadata"):
        yield from _words(metadata, "error_type")
    yield from _words(error, "error_code", "code", "Code", "error_type", "type", "__type", "status")
    if error is not document:
        yield from _words(document, "error_code", "code", "error_type", "type", "__type")
    yield from _words(document, "error")


def _words(holder: Document, *names: str) -> Iterator[str]:
    for name in names:
        value = holder.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value) if abs(value) < 10**9 else ""
        if isinstance(value, str) and value and len(value) <= _CODE_LENGTH and " " not in value:
            yield value


def _parsed(text: str) -> object:
    text = text.strip()
    if not text.startswith(("{", "[")) or len(text) > _LONGEST_BODY:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
