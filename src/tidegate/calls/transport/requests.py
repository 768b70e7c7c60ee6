"""Adds the API key, the idempotency key and the time limits to a request before it is sent.

This module handles the requests of `httpx2` and `httpx` by duck typing and imports neither library.
"""

from __future__ import annotations

import uuid
from typing import Any

from tidegate.calls.permits import Permit
from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.identity import CallIdentity, identify_call
from tidegate.calls.transport.libraries import content_of
from tidegate.calls.transport.redirects import leaves_origin
from tidegate.domain.spec import NO_LIMIT
from tidegate.providers.requests import Sizes, asks_for_stream, sizes_of

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


def sizes_of_request(request: Any) -> Sizes:
    """Return the sizes that a request asks for; empty sizes if its body is an upload that is not read yet."""
    return sizes_of(content_of(request), str(request.url))


def prepare_request(
    request: Any,
    settings: CallSettings,
    permit: Permit,
    times: CallTimes,
    *,
    is_stream_asked_for: bool,
    identity: CallIdentity | None = None,
) -> None:
    """Add the API key, the idempotency key and the time limits to the request.

    Args:
        request: The request.
        settings: The settings of the call.
        permit: The permit of the call.
        times: The time limits of the call.
        is_stream_asked_for: Whether it asks for a streamed response.
        identity: The identity of a recorded call; None for another call.
    """
    headers = request.headers
    if permit.api_key is not None and not leaves_origin(request):
        _put_key(headers, permit.api_key)
    name = settings.idempotency_header
    if name and request.method == "POST" and name not in headers:
        headers[name] = _idempotency_key(identity or identify_call(request))
    if is_stream_asked_for:
        # A compressed stream cannot be read while it is passed on.
        headers["accept-encoding"] = "identity"
    request.extensions = {**request.extensions, "timeout": _timeouts(request, times)}


def wants_stream(request: Any) -> bool:
    """Return whether the request asks for a streamed response."""
    return asks_for_stream(str(request.url), request.headers, content_of(request))


def _idempotency_key(identity: CallIdentity | None) -> str:
    """Return the idempotency key of a call. It is random for a call without an identity."""
    return f"tg-{uuid.uuid4().hex}" if identity is None else identity.idempotency_key


def _put_key(headers: Any, secret: str) -> None:
    name = next((name for name in _KEY_HEADERS if name in headers), "authorization")
    headers[name] = f"Bearer {secret}" if name == "authorization" else secret


def _timeouts(request: Any, times: CallTimes) -> dict[str, float | None]:
    """Return the client's own timeouts, each capped at ours; None if neither is set."""
    given = request.extensions.get("timeout") or {}
    ours = {"connect": times.connect_seconds, **dict.fromkeys(("read", "write", "pool"), times.seconds)}
    shorter = {what: min(limit, _or_no_limit(given.get(what))) for what, limit in ours.items()}
    return {what: None if limit == NO_LIMIT else limit for what, limit in shorter.items()}


def _or_no_limit(seconds: float | None) -> float:
    return NO_LIMIT if seconds is None else seconds
