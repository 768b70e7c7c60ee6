"""Reads the HTTP facts of an exception or response: status, headers, body, codes.

The facts are found by duck typing: no SDK or HTTP library is imported, no method is called, and nothing is
read from a socket. SDKs use different names for these facts, so this module lists the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidegate.providers._bodies import Document, as_document, codes, message_text
from tidegate.providers.waits import header_pairs

_STATUS_NAMES = ("status_code", "http_status", "status", "code", "http_code")
_BODY_NAMES = ("body", "json_body", "details")
_CODE_NAMES = ("error_code", "code", "type", "status")
_CODE_HEADERS = ("x-amzn-errortype", "x-ms-error-code", "x-error-code")
REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-ms-request-id",
    "x-goog-request-id",
    "x-amzn-trace-id",
    "cf-ray",
)
_URL_HOST = re.compile(r"[a-z]+://(?:[^/?#@]*@)?([^/?#:]+)", re.ASCII | re.IGNORECASE)
_BODY_KINDS = (str, bytes, bytearray, list, tuple, Mapping)
_LONGEST_CODE = 200
_LONGEST_TEXT = 4_000
_MOST_CLASSES = 100


@dataclass(frozen=True, slots=True)
class Evidence:
    """The HTTP facts of one exception or response. Every field may be empty."""

    status: int | None
    headers: tuple[tuple[str, str], ...]
    """The headers, with names in lower case."""
    document: Document | None
    """The body; None if it was not a JSON object."""
    codes: tuple[str, ...]
    """Machine-readable codes, the most specific first."""
    request_id: str
    is_page: bool
    """The body is HTML: an edge server answered, and not the service."""
    text: str
    """The message for people: of the body, or else of the exception."""
    host: str
    """The host that answered; empty if unknown."""
    modules: tuple[str, ...]
    """The root modules of the exception's classes, the nearest first; empty for a response."""
    source: object
    """The exception; None for a response."""

    def header(self, name: str) -> str | None:
        """Return the first value of the header, whose name is given in lower case; None if it is missing."""
        return next((value for known, value in self.headers if known == name), None)


def read_evidence(exc: BaseException) -> Evidence:
    """Return the HTTP facts of an exception."""
    response = peek(exc, "response")
    headers = tuple(_headers(exc, response))
    bodies = [body for body in _bodies(exc, response) if isinstance(body, _BODY_KINDS)]
    document = next((found for found in map(as_document, bodies) if found is not None), None)
    return Evidence(
        status=_status(exc, response),
        headers=headers,
        document=document,
        codes=tuple(_codes(exc, headers, document)),
        request_id=_request_id(exc, response, headers, document),
        is_page=_is_page(headers, bodies),
        text=_text(document, bodies) or own_text(exc),
        host=_host(exc, response),
        modules=tuple(_modules(exc)),
        source=exc,
    )


def evidence_of_answer(status: int | None, headers: object, body: object, *, host: str = "") -> Evidence:
    """Return the facts of a response for which no exception was raised."""
    pairs = tuple(header_pairs(headers))
    document = as_document(body)
    return Evidence(
        status=_as_status(status),
        headers=pairs,
        document=document,
        codes=tuple(_codes(None, pairs, document)),
        request_id=_request_id(None, None, pairs, document),
        is_page=_is_page(pairs, [body]),
        text=_text(document, [body]),
        host=host,
        modules=(),
        source=None,
    )


def peek(holder: object, name: str) -> object:
    """Return an attribute; None if it is missing or reading it raises, as a foreign property may."""
    try:
        return getattr(holder, name, None)
    except BaseException:
        return None


def field(holder: object, name: str) -> object:
    """Return `holder[name]` of a dictionary, else None."""
    return holder.get(name) if isinstance(holder, dict) else None


def own_text(exc: BaseException) -> str:
    """Return the beginning of the exception's own text, or an empty text if reading it fails."""
    try:
        text = str.__str__(str(exc))[:_LONGEST_TEXT]
    except BaseException:
        text = ""
    kept = (peek(exc, "message"), peek(exc, "detail"))
    return text or next((value[:_LONGEST_TEXT] for value in kept if isinstance(value, str)), "")


def _status(exc: BaseException, response: object) -> int | None:
    found = [
        *(_as_status(peek(exc, name)) for name in _STATUS_NAMES),
        _as_status(peek(response, "status_code")),
        _as_status(peek(response, "status")),
        _as_status(field(field(response, "ResponseMetadata"), "HTTPStatusCode")),
    ]
    statuses = [status for status in found if status is not None]
    # A stream that began with 200 also has the status of the error that came later.
    return next((status for status in statuses if status >= 400), statuses[0] if statuses else None)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return int(value)
    return None


def _headers(exc: BaseException, response: object) -> Iterator[tuple[str, str]]:
    for headers in (
        peek(response, "headers"),
        field(field(response, "ResponseMetadata"), "HTTPHeaders"),
        peek(exc, "headers"),
    ):
        if headers is not None:
            yield from header_pairs(headers)


def _bodies(exc: BaseException, response: object) -> Iterator[object]:
    for name in _BODY_NAMES:
        yield peek(exc, name)
    if isinstance(response, dict):
        yield response
    # `requests` would read an unread body from the socket here.
    elif peek(response, "_content_consumed") is not False:
        text = peek(response, "text")
        yield text if isinstance(text, str) else None


def _codes(
    exc: BaseException | None, headers: tuple[tuple[str, str], ...], document: Document | None
) -> Iterator[str]:
    if document is not None:
        yield from codes(document)
    yield from (value for name, value in headers if name in _CODE_HEADERS)
    error = peek(exc, "error")
    named = (*(peek(exc, name) for name in _CODE_NAMES), error, peek(error, "code"))
    yield from (value for value in named if isinstance(value, str) and 0 < len(value) <= _LONGEST_CODE)


def _request_id(
    exc: BaseException | None,
    response: object,
    headers: tuple[tuple[str, str], ...],
    document: Document | None,
) -> str:
    by_name = dict(reversed(headers))
    candidates = (
        *(by_name.get(name) for name in REQUEST_ID_HEADERS),
        field(field(response, "ResponseMetadata"), "RequestId"),
        peek(exc, "request_id"),
        field(document, "request_id"),
    )
    return next((value for value in candidates if isinstance(value, str) and value), "")


def _is_page(headers: tuple[tuple[str, str], ...], bodies: Sequence[object]) -> bool:
    declared = any(name == "content-type" and "text/html" in value.lower() for name, value in headers)
    return declared or any(isinstance(body, str) and body.lstrip()[:1] == "<" for body in bodies)


def _text(document: Document | None, bodies: Sequence[object]) -> str:
    if document is not None:
        return message_text(document)[:_LONGEST_TEXT]
    return next((body[:_LONGEST_TEXT] for body in bodies if isinstance(body, str)), "")


def _host(exc: BaseException, response: object) -> str:
    for holder in (response, peek(response, "request"), peek(exc, "request")):
        url = peek(holder, "url")
        host = peek(url, "host")
        if isinstance(host, str) and host:
            return host
        if isinstance(url, str) and (found := _URL_HOST.match(url)):
            return found[1]
    return ""


def _modules(exc: BaseException) -> Iterator[str]:
    for kind in type(exc).__mro__[:_MOST_CLASSES]:
        module = kind.__module__
        if isinstance(module, str) and module != "builtins":
            yield module.partition(".")[0]
