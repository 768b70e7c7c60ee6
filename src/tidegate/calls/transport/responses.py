"""Reads responses: which ones to buffer, which ones are failures, and which usage they report."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Any

import msgspec

from tidegate.calls.results import is_in_doubt
from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.redirects import calls_a_model
from tidegate.domain.calls import CallResult
from tidegate.providers._bodies import is_error, meant_status
from tidegate.providers.understand import understand_answer
from tidegate.providers.usage import usage_of

_PAGES = ("text/html", "application/xhtml+xml")


def is_page_instead_of_answer(request: Any, response: Any) -> bool:
    """Return whether the response to a model call is a web page: the address is not that of an API."""
    return response.status_code < 300 and content_type(response) in _PAGES and calls_a_model(request)


def replace_with_not_found(request: Any, response: Any, library: Any) -> bytes:
    """Turn a web page in response to a model call into a 404 with an explanation; return the new body.

    SDKs would otherwise return the page's text, an empty stream, or an error about JSON.
    """
    url = request.url.copy_with(query=None, fragment=None, username=None, password=None)
    message = (
        f"{url} answered with a web page instead of the API's JSON: its address is wrong. "
        "Check base_url (does it lack /v1, or name the provider's website?) and the proxy in between"
    )
    body = json.dumps(
        {"error": {"message": message, "type": "not_found_error", "code": "not_an_api"}}
    ).encode()
    response.status_code = HTTPStatus.NOT_FOUND.value
    for name in ("content-encoding", "transfer-encoding"):
        response.headers.pop(name, None)
    response.headers.update({"content-type": "application/json", "content-length": str(len(body))})
    response.stream = library.ByteStream(body)
    return body


def is_buffered(response: Any, *, is_stream_asked_for: bool, is_streamed_by_client: bool) -> bool:
    """Return whether the response is read completely before it is passed on. Errors always are.

    JSON is read completely if neither the request nor the client asks for a stream. The content type alone
    does not decide, since Gemini and Cohere label their streams as JSON. If the request asks for a stream,
    JSON with a stated length is still read completely.

    Args:
        response: The inner transport's response.
        is_stream_asked_for: Whether the request asks the provider for a stream.
        is_streamed_by_client: Whether the client reads the response as a stream.
    """
    status: int = response.status_code
    if status >= 400:
        return True
    if not is_document(response):
        return False
    if is_stream_asked_for:
        return "content-length" in response.headers
    return not is_streamed_by_client


def is_document(response: Any) -> bool:
    """Return whether the response's content type is JSON."""
    kind = content_type(response)
    return kind == "application/json" or kind.endswith("+json")


def check_complete(response: Any, body: bytes, library: Any, request: Any) -> None:
    """Check that a successful JSON response is complete.

    Raises:
        Exception: The library's `RemoteProtocolError`, if the JSON is cut off. The cause is a gateway that
            closes its connection early, without a stated length.
    """
    if response.status_code >= 400 or not body.strip() or not is_document(response):
        return
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            message = "the response is incomplete: its JSON is cut off"
            raise library.RemoteProtocolError(message, request=request) from error


def content_type(response: Any) -> str:
    """Return the media type of a response in lower case, without parameters."""
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


def result_of_response(
    response: Any, body: bytes, settings: CallSettings, host: str, *, seconds: float
) -> CallResult:
    """Return the result of a call whose response was read completely. May change the response's status.

    Some providers answer 200 with an error whose code is the real status. The response gets that status, so
    that the SDK raises an error and does not return a response without content.
    """
    document = parse_object(body)
    status: int = response.status_code
    failure = None
    if status >= 400 or (document is not None and is_error(document)):
        failure = understand_answer(
            status,
            response.headers.multi_items(),
            body if document is None else document,
            now=time.time(),
            provider=settings.provider_name,
            host=host,
        )
    if status < 400 and failure is not None and document is not None:
        response.status_code = meant_status(document) or status
    if response.status_code >= 400:
        response.headers["x-should-retry"] = "false"
    usage = None if document is None else usage_of(document)
    return CallResult(failure, status, usage, seconds, is_in_doubt=is_in_doubt(status))


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in the bytes, or the first object of a JSON list; None if there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, list) and document:
        document = document[0]
    return document if isinstance(document, dict) else None
