"""What a provider's error body says, whatever its nesting: its inner error, its codes, its text.

Bodies come from strangers; everything here answers with what it finds and ignores the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Document = dict[str, Any]

_LONGEST_BODY = 1_000_000
_CODE_LENGTH = 200


def as_document(body: object) -> Document | None:
    """Return the body as one JSON object, or None.

    Takes the object itself, its JSON text or bytes, or a list whose first member it is (streaming
    endpoints wrap errors so).
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
        # A mapping of a stranger's making may do anything when it is read.
        return None


def error_part(document: Document) -> Document:
    """Return the inner error of `{"error": {…}}` and its likes, else the document itself.

    OpenRouter puts the error of a provider behind it into `choices[].error`, Cloudflare's gateways put a list
    of them into `errors`.
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
    """Return whether a document is an error, no matter which status came with it.

    Z.ai answers 200 with `{"success": false, "code": 500}`, Cloudflare's gateways alike.
    """
    if document.get("error") or document.get("status") == "failed" or error_part(document) is not document:
        return True
    return document.get("success") is False and any(document.get(name) for name in ("code", "errors"))


def meant_status(document: Document) -> int | None:
    """Return the status that an error behind a 200 means, where its code is one."""
    code = error_part(document).get("code")
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599 else None


def members(document: Document, name: str) -> Iterator[Document]:
    """Yield the objects in the field `name`, be it one object or a list of them."""
    value = document.get(name)
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def message_text(document: Document) -> str:
    """Return the human sentence of the error, or an empty text."""
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
    """Yield the machine-readable codes of the body, the most telling first."""
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
