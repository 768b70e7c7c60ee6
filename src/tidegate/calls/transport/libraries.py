"""Supports `httpx2` and `httpx` with the same code: the classes of both libraries have the same shape.

Current SDKs of OpenAI, Anthropic and others use `httpx2`; older and many other SDKs use `httpx`. Both may be
loaded in one process. Neither is imported unless a new transport is needed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from inspect import currentframe
from typing import Any

from tidegate.errors import ConfigError

_NAMES = ("httpx2", "httpx")


def make_transport() -> Any:
    """Return a new asynchronous transport of `httpx2`, or of `httpx` if `httpx2` is not installed.

    Raises:
        ConfigError: Neither library is installed.
    """
    for name in _NAMES:
        try:
            library = import_module(name)
        except ImportError:
            continue
        # Permits and `max_in_flight` limit the calls. A smaller connection pool would only use up the time of
        # calls.
        return library.AsyncHTTPTransport(limits=library.Limits(max_keepalive_connections=100))
    raise ConfigError("a transport needs httpx2 or httpx, and neither is installed", fix="pip install httpx2")


def library_of_transport(inner: object) -> Any:
    """Return the library of a transport, even if its class is a subclass.

    Raises:
        ConfigError: The transport belongs to neither library.
    """
    for name in _NAMES:
        library = sys.modules.get(name)
        # `__module__` does not show the library: openai 3 sets `__module__` to its own name.
        if library is not None and isinstance(inner, library.BaseTransport | library.AsyncBaseTransport):
            return library
    raise ConfigError(
        f"{type(inner).__name__} is not a transport of httpx2 or httpx",
        fix="pass a transport of the library whose client uses it",
    )


_NEAREST_FRAMES = 20
"""How many stack frames are searched. There are six between a client's `send` and its transport, and a few
more with instrumentation."""


def is_streamed_by_client(library: Any) -> bool:
    """Return whether the client that makes the current request reads its response as a stream.

    The client does not pass `stream=True` to its transport, so this reads it from the stack frame of the
    client's `send`, which `client.stream(…)` and `client.send(…, stream=True)` use. Returns False if there is
    no such frame. Call it in the client's own task or thread.
    """
    senders = {library.AsyncClient.send.__code__, library.Client.send.__code__}
    frame = currentframe()
    for _ in range(_NEAREST_FRAMES):
        if frame is None:
            break
        if frame.f_code in senders:
            return frame.f_locals.get("stream") is True
        frame = frame.f_back
    return False


@asynccontextmanager
async def time_limit(library: Any, seconds: float, request: Any) -> AsyncIterator[None]:
    """Limit the time of the block.

    Raises:
        Exception: The library's `ReadTimeout`, which SDKs handle, if the block takes longer.
    """
    limit = asyncio.timeout(None if seconds == float("inf") else seconds)
    try:
        async with limit:
            yield
    except TimeoutError as over:
        if not limit.expired():
            raise
        raise library.ReadTimeout(f"nothing came within {seconds:g} s", request=request) from over


def content_of(request: Any) -> bytes | None:
    """Return the request's body; None if it is a multipart or streamed body that is not read yet."""
    try:
        content: bytes = request.content
    except Exception:  # the error is `RequestNotRead` of either library
        return None
    return content
