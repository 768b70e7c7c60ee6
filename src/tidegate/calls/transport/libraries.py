"""The two HTTP libraries, told apart by name: their classes are twins, and neither is imported unasked.

`httpx2` is what the current SDKs of OpenAI, Anthropic and others are made for, `httpx` what the older and
many other ones are. Both may be loaded in one process.
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
    """Return a new asynchronous transport of the library that is installed, `httpx2` first.

    Raises:
        ConfigError: Neither is installed.
    """
    for name in _NAMES:
        try:
            library = import_module(name)
        except ImportError:
            continue
        # Permits and `max_in_flight` limit the calls. A pool that let fewer through would spend their time.
        return library.AsyncHTTPTransport(limits=library.Limits(max_keepalive_connections=100))
    raise ConfigError("a transport needs httpx2 or httpx, and neither is installed", fix="pip install httpx2")


def library_of_transport(inner: object) -> Any:
    """Return the library whose transport this is, or a subclass of.

    Raises:
        ConfigError: It is of neither.
    """
    for name in _NAMES:
        library = sys.modules.get(name)
        # Not by `__module__`: openai 3 puts its own name there.
        if library is not None and isinstance(inner, library.BaseTransport | library.AsyncBaseTransport):
            return library
    raise ConfigError(
        f"{type(inner).__name__} is no transport of httpx2 or httpx",
        fix="give a transport of the library whose client gets it",
    )


_NEAREST_FRAMES = 20
"""Between a client's `send` and its transport are six, and a few more under instrumentation."""


def is_streamed_by_client(library: Any) -> bool:
    """Return whether the client that makes the present request reads its answer in pieces.

    A client keeps `stream=True` to itself, so the frame of its `send` is asked: that of `client.stream(…)` or
    `client.send(…, stream=True)`. False where no such frame is found. To be called in the client's own task
    or thread.
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
    """Give the block this much time.

    Raises:
        Exception: The library's `ReadTimeout`, which SDKs know, when it takes longer.
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
    """Return the request's body; None where it is multipart or streamed, and still to be read."""
    try:
        content: bytes = request.content
    except Exception:  # RequestNotRead of either library
        return None
    return content
