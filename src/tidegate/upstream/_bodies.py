"""The bodies of the requests of `httpx2` and `httpx`."""

from __future__ import annotations

from typing import Any


def content_of(request: Any) -> bytes | None:
    """Return the request's body; None where it is multipart or streamed, and still to be read."""
    try:
        content: bytes = request.content
    except Exception:  # RequestNotRead of either library
        return None
    return content
