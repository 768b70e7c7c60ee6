"""Suppresses an SDK's own retries: each retry raises the error of the first try again and sends nothing.

SDKs made with Stainless (OpenAI, Anthropic, Groq, Together, Fireworks) number their tries in a header. All
tries of one call are made in the same context, so a context variable keeps the first error for them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

_last_error: ContextVar[tuple[str, Exception] | None] = ContextVar("tidegate_last_error", default=None)


def reraise_first_error(request: Any) -> None:
    """Raise the error of the first try again if this request is an SDK's own retry of it."""
    first = _last_error.get()
    _last_error.set(None)
    if request.headers.get("x-stainless-retry-count", "0") == "0" or first is None:
        return
    call, error = first
    if call == _call_of(request):
        _last_error.set(first)
        raise error


def remember_error(request: Any, error: BaseException) -> None:
    """Keep an error for the retries that an SDK may make of this request."""
    if isinstance(error, Exception):
        _last_error.set((_call_of(request), error))


def _call_of(request: Any) -> str:
    return f"{request.method} {request.url}"
