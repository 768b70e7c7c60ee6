"""Redirects: a redirect to another host must not carry our API keys.

A client that follows a redirect removes its own key from the new request, and copies the extensions of the
old request to the new one. So an extension carries the original address to redirected requests, and to no
others.
"""

from __future__ import annotations

from typing import Any

from tidegate.calls.transport.libraries import content_of
from tidegate.providers.requests import is_model_call

_ASKED = "tidegate_asked"
"""The extension that holds the address that was requested first."""
_MODEL_CALLED = "tidegate_model_called"
"""The extension that marks a redirected model call. Clients follow the redirect with a GET."""


def remember_origin(request: Any, response: Any) -> None:
    """Record the address of a redirected request for the request that follows. The first redirect counts."""
    if response.has_redirect_location:
        request.extensions = {
            _ASKED: request.url,
            _MODEL_CALLED: calls_a_model(request),
            **request.extensions,
        }


def calls_a_model(request: Any) -> bool:
    """Return whether the request, or the request that was redirected to it, calls a model."""
    if request.extensions.get(_MODEL_CALLED):
        return True
    return is_model_call(request.method, str(request.url), content_of(request))


def leaves_origin(request: Any) -> bool:
    """Whether a redirect leads the request to another host, which must not get our API keys."""
    asked = request.extensions.get(_ASKED)
    return asked is not None and not _is_same(asked, request.url)


def _is_same(asked: Any, url: Any) -> bool:
    """Whether two addresses have the same origin. An upgrade from http to https on one host also counts."""
    if asked.host != url.host:
        return False
    return (asked.scheme, asked.port) == (url.scheme, url.port) or (
        (asked.scheme, asked.port, url.scheme, url.port) == ("http", None, "https", None)
    )
