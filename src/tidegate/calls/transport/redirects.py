"""Redirects to another place: the keys of a ring are not for whoever is named there.

A client takes its own key off the request by which it follows a redirect, and hands the extensions of the one
that was redirected on to it. So who was asked at first travels with such a request, and with no other.
"""

from __future__ import annotations

from typing import Any

from tidegate.calls.transport.libraries import content_of
from tidegate.providers.requests import is_model_call

_ASKED = "tidegate_asked"
"""The extension that names it."""
_MODEL_CALLED = "tidegate_model_called"
"""The extension that says that the request that was redirected asked a model: clients follow with a GET."""


def remember_origin(request: Any, response: Any) -> None:
    """Leave word of who redirects, for the request that may follow: of several redirects, the first."""
    if response.has_redirect_location:
        request.extensions = {
            _ASKED: request.url,
            _MODEL_CALLED: calls_a_model(request),
            **request.extensions,
        }


def calls_a_model(request: Any) -> bool:
    """Return whether the request, or the one that was redirected here, asks a model for something."""
    if request.extensions.get(_MODEL_CALLED):
        return True
    return is_model_call(request.method, str(request.url), content_of(request))


def leaves_origin(request: Any) -> bool:
    """Whether a redirect leads the request where no key of ours belongs."""
    asked = request.extensions.get(_ASKED)
    return asked is not None and not _is_same(asked, request.url)


def _is_same(asked: Any, url: Any) -> bool:
    """Whether two addresses are one place; its way to https is no other place."""
    if asked.host != url.host:
        return False
    return (asked.scheme, asked.port) == (url.scheme, url.port) or (
        (asked.scheme, asked.port, url.scheme, url.port) == ("http", None, "https", None)
    )
