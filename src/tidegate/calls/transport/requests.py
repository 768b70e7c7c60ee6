"""What is put on a request before it is sent: key, idempotency key, time limits.

Knows the shape of the requests of `httpx2` and `httpx` by duck typing, and imports neither.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from tidegate.calls.permits import Permit
from tidegate.calls.settings import CallSettings, CallTimes
from tidegate.calls.transport.libraries import content_of
from tidegate.calls.transport.redirects import leaves_origin
from tidegate.context import Context, current_context
from tidegate.domain.spec import NO_LIMIT
from tidegate.providers.requests import Sizes, asks_for_stream, sizes_of

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


def _has_much_to_lose(run: Context) -> bool:
    """Return whether a failed call would end the task, and a refused one would not.

    Not for a run that is to try its upstream, nor after a call that may have been processed: there the
    attempt is spent either way.
    """
    is_last = run.attempt >= run.max_attempts
    return is_last and not run.is_probe and not run.calls.summary("").may_be_processed


def sizes_of_request(request: Any) -> Sizes:
    """Return what a request asks for; nothing where its body is an upload that is still to be read."""
    return sizes_of(content_of(request))


def prepare_request(
    request: Any, settings: CallSettings, permit: Permit, times: CallTimes, *, is_stream_asked_for: bool
) -> None:
    """Put on the request what goes with every call: key, idempotency key, time limits."""
    headers = request.headers
    if permit.api_key is not None and not leaves_origin(request):
        _put_key(headers, permit.api_key)
    name = settings.idempotency_header
    if name and request.method == "POST" and name not in headers:
        headers[name] = idempotency_key(request.method, str(request.url), content_of(request))
    if is_stream_asked_for:
        # What is compressed cannot be read while it passes.
        headers["accept-encoding"] = "identity"
    request.extensions = {**request.extensions, "timeout": _timeouts(request, times)}


def wants_stream(request: Any) -> bool:
    """Return whether the request asks for an answer in pieces."""
    return asks_for_stream(str(request.url), request.headers, content_of(request))


_equal_calls: WeakKeyDictionary[Context, Counter[str]] = WeakKeyDictionary()


def idempotency_key(method: str, url: str, body: bytes | None) -> str:
    """Return the key of this call: the same when the task runs again and makes the same call.

    Equal calls of one run are numbered, so each has a key of its own. The key is random outside a task, and
    where the content cannot be read: two different uploads must never share one.

    Args:
        method: Of the request.
        url: Of the request.
        body: Its content; None: an upload that is still to be read.
    """
    run = current_context()
    if run is None or body is None:
        return f"tg-{uuid.uuid4().hex}"
    content = hashlib.sha256(b"\0".join((method.encode(), url.encode(), body))).hexdigest()
    calls = _equal_calls.setdefault(run, Counter())
    calls[content] += 1
    named = f"{run.task_id} {content} {calls[content]}"
    return f"tg-{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def _put_key(headers: Any, secret: str) -> None:
    name = next((name for name in _KEY_HEADERS if name in headers), "authorization")
    headers[name] = f"Bearer {secret}" if name == "authorization" else secret


def _timeouts(request: Any, times: CallTimes) -> dict[str, float | None]:
    """Return the libraries' own time limits: the client's, none longer than ours; None for none."""
    given = request.extensions.get("timeout") or {}
    ours = {"connect": times.connect_seconds, **dict.fromkeys(("read", "write", "pool"), times.seconds)}
    shorter = {what: min(limit, _or_no_limit(given.get(what))) for what, limit in ours.items()}
    return {what: None if limit == NO_LIMIT else limit for what, limit in shorter.items()}


def _or_no_limit(seconds: float | None) -> float:
    return NO_LIMIT if seconds is None else seconds
