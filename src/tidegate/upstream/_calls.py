"""What every way of making a call has in common: what is asked for, sent along, learned and told.

Knows the shape of requests and answers of `httpx2` and `httpx` by duck typing, and imports neither.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from tidegate.context import Context, present
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Fence
from tidegate.domain.permit import Ask, CallEnd
from tidegate.errors import StoreError
from tidegate.providers.requests import Sizes, sizes_of
from tidegate.providers.understand import understand
from tidegate.upstream.permits import Permit
from tidegate.upstream.settings import CallSettings, CallTimes

_log = logging.getLogger("tidegate.upstream")
_NEVER_SENT = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "UnsupportedProtocol",
        "LocalProtocolError",
        "ProxyError",
    }
)
"""Classes of errors that prove that the request did not leave."""
_NO_ROOM_OF_OUR_OWN = "PoolTimeout"
"""The class of an error that is no fact about the upstream: the client's own connections are all in use."""
_STREAM_WANTED = re.compile(rb'"stream"\s*:\s*true')
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_GATEWAY_GAVE_UP = frozenset({408, 504, 522, 524})
"""Answers of somebody in between: whether the model did its work is not known."""


# --- before ----------------------------------------------------------------------------------------------


_have_called: WeakSet[Context] = WeakSet()
"""Runs that have made a call of their upstream."""


def ask_for(sizes: Sizes, upstream: str) -> Ask:
    """Return what to ask a permit for, on behalf of the present run."""
    run = present()
    if run is None:
        return Ask(sizes.model, sizes.input_tokens, sizes.output_tokens)
    return Ask(
        sizes.model,
        sizes.input_tokens,
        sizes.output_tokens,
        patience_seconds=run.remaining(),
        fence=Fence(run.task_id, run.run),
        priority=run.priority,
        tenant=run.tenant,
        is_charged=_is_charged(run, upstream),
    )


def _is_charged(run: Context, upstream: str) -> bool:
    """Return whether this is the run's first call of the upstream that its claim was charged for."""
    if run.upstream != upstream or run in _have_called:
        return False
    _have_called.add(run)
    return True


def sizes_of_request(request: Any) -> Sizes:
    """Return what a request asks for; nothing where its body is an upload that is still to be read."""
    return sizes_of(_content(request))


def times_now(times: CallTimes) -> CallTimes:
    """Return the time limits, none longer than the present run has left."""
    run = present()
    return times if run is None else times.within(run.remaining())


def dress(request: Any, settings: CallSettings, permit: Permit, times: CallTimes) -> None:
    """Put on the request what goes with every call: key, idempotency key, time limits."""
    headers = request.headers
    if permit.api_key is not None:
        _put_key(headers, permit.api_key)
    name = settings.idempotency_header
    if name and request.method == "POST" and name not in headers:
        headers[name] = idempotency_key(request.method, str(request.url), _content(request))
    if wants_stream(request):
        # What is compressed cannot be read while it passes.
        headers["accept-encoding"] = "identity"
    given = request.extensions.get("timeout") or {}
    limits = {"connect": times.connect_seconds, "read": times.seconds, "write": times.seconds}
    limits["pool"] = times.seconds
    shorter = {what: _least(given.get(what), limit) for what, limit in limits.items()}
    request.extensions = {**request.extensions, "timeout": shorter}


def wants_stream(request: Any) -> bool:
    """Return whether the request asks for an answer in pieces."""
    return _STREAM_WANTED.search(_content(request)) is not None or b"alt=sse" in request.url.query


_equal_calls: WeakKeyDictionary[Context, Counter[str]] = WeakKeyDictionary()


def idempotency_key(method: str, url: str, body: bytes) -> str:
    """Return the key of this call: the same when the task runs again and makes the same call.

    Of several equal calls of one run each has its own, by their number. Outside a task it is random.
    """
    run = present()
    if run is None:
        return f"tg-{uuid.uuid4().hex}"
    content = hashlib.sha256(b"\0".join((method.encode(), url.encode(), body))).hexdigest()
    calls = _equal_calls.setdefault(run, Counter())
    calls[content] += 1
    named = f"{run.task_id} {content} {calls[content]}"
    return f"tg-{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def _put_key(headers: Any, secret: str) -> None:
    name = next((name for name in _KEY_HEADERS if name in headers), "authorization")
    headers[name] = f"Bearer {secret}" if name == "authorization" else secret


def _content(request: Any) -> bytes:
    try:
        content: bytes = request.content
    except Exception:  # it is streamed, and was not read: RequestNotRead of either library
        return b""
    return content


def _least(given: float | None, limit: float) -> float:
    return limit if given is None else min(given, limit)


# --- an SDK's own retries --------------------------------------------------------------------------------

_last_error: ContextVar[tuple[str, Exception] | None] = ContextVar("tidegate_last_error", default=None)


def raise_again(request: Any) -> None:
    """Raise the error of the first try if this is an SDK's own retry of it; nothing is sent then.

    SDKs made with Stainless (OpenAI, Anthropic and others) number their tries in a header. The first error
    is found again because the tries of one call are made in the same context.
    """
    first = _last_error.get()
    _last_error.set(None)
    if request.headers.get("x-stainless-retry-count", "0") == "0" or first is None:
        return
    what, error = first
    if what == _what(request):
        _last_error.set(first)
        raise error


def remember(request: Any, error: BaseException) -> None:
    """Keep an error for the retries that an SDK may make of this request."""
    if isinstance(error, Exception):
        _last_error.set((_what(request), error))


def _what(request: Any) -> str:
    return f"{request.method} {request.url}"


# --- after -----------------------------------------------------------------------------------------------


def end_of_error(error: BaseException, settings: CallSettings, *, seconds: float) -> CallEnd:
    """Return how a call ended that raised after it was sent, or was to be sent."""
    failure = understood(error, settings)
    names = {kind.__name__ for kind in type(error).__mro__}
    return CallEnd(
        failure=failure,
        status=failure.status,
        seconds=seconds,
        in_doubt=failure.status is None and not names & _NEVER_SENT,
    )


def never_left_us(error: BaseException) -> bool:
    """Return whether the request only ever waited for one of our own connections."""
    return any(kind.__name__ == _NO_ROOM_OF_OUR_OWN for kind in type(error).__mro__)


def understood(error: BaseException, settings: CallSettings) -> Failure:
    """Return what an error means. Never raises."""
    try:
        return understand(error, now=time.time(), provider=settings.meant_by)
    except Exception:
        # The permit must be given back whatever a stranger's exception does.
        return Failure(Verdict.UNKNOWN, Reason.UNKNOWN, evidence="could not be understood")


def is_in_doubt(status: int) -> bool:
    """Return whether an answer leaves open if the work was done."""
    return status in _GATEWAY_GAVE_UP


_settling: set[asyncio.Future[None]] = set()
"""Referenced, so that those whose caller was cancelled still come to their end."""


async def see_through(work: Coroutine[Any, Any, None]) -> None:
    """Await the end of a permit, also while the caller is being cancelled.

    If the store cannot be reached it is only told of in the log: the answer is there and must not be lost,
    and the permit comes back with the worker's lease.
    """
    settling = asyncio.ensure_future(_tolerant(work))
    _settling.add(settling)
    settling.add_done_callback(_settling.discard)
    await asyncio.shield(settling)


async def _tolerant(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StoreError as error:
        _log.warning("a permit could not be settled: %s", error)
