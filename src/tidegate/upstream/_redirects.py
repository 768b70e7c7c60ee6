"""Redirects to another place: the keys of a ring are not for whoever is named there.

A client takes its own key off such a request, and makes it in the context of the one that was redirected.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

_redirected: ContextVar[Any] = ContextVar("tidegate_redirected", default=None)
"""The address that answered the last request of this context with a redirect."""
_MARK = "tidegate_foreign"


def mark(request: Any) -> None:
    """Mark a request by which a client follows a redirect to another place."""
    asked = _redirected.get()
    _redirected.set(None)
    if asked is not None and not _is_same(asked, request.url):
        request.extensions = {**request.extensions, _MARK: asked}


def is_foreign(request: Any) -> bool:
    """Whether the request goes where no key of ours belongs."""
    return _MARK in request.extensions


def note(request: Any, response: Any) -> None:
    """Remember who redirects: of several redirects after each other, the first."""
    if response.has_redirect_location:
        _redirected.set(request.extensions.get(_MARK, request.url))


def _is_same(asked: Any, url: Any) -> bool:
    """Whether two addresses are one place; its way to https is no other place."""
    if asked.host != url.host:
        return False
    return (asked.scheme, asked.port) == (url.scheme, url.port) or (
        (asked.scheme, asked.port, url.scheme, url.port) == ("http", None, "https", None)
    )
