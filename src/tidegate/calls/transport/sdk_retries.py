"""An SDK's own retries, met by the error of the first try: one run, one call.

SDKs made with Stainless (OpenAI, Anthropic, Groq, Together, Fireworks) number their tries in a header. The
first error is found again because the tries of one call are made in the same context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

_last_error: ContextVar[tuple[str, Exception] | None] = ContextVar("tidegate_last_error", default=None)


def reraise_first_error(request: Any) -> None:
    """Raise the error of the first try if this is an SDK's own retry of it; nothing is sent then."""
    first = _last_error.get()
    _last_error.set(None)
    if request.headers.get("x-stainless-retry-count", "0") == "0" or first is None:
        return
    what, error = first
    if what == _what(request):
        _last_error.set(first)
        raise error


def remember_error(request: Any, error: BaseException) -> None:
    """Keep an error for the retries that an SDK may make of this request."""
    if isinstance(error, Exception):
        _last_error.set((_what(request), error))


def _what(request: Any) -> str:
    return f"{request.method} {request.url}"
