"""The way for sync clients: the one asynchronous core, on the bridge's loop.

A sync transport inside (`httpx2.HTTPTransport`, say) is run in threads, so that its time limits hold too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import cache
from typing import Any, Protocol

from tidegate._bridge import run_sync
from tidegate.upstream._libraries import is_streamed_by_client
from tidegate.upstream._retries import raise_again, remember


class Core(Protocol):
    """The asynchronous transport."""

    def exchange(self, request: Any, is_streamed_by_client: bool) -> Coroutine[Any, Any, Any]:
        """Return the answer to a request."""
        ...

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Close what it holds."""
        ...


class SyncSide:
    """Handles the requests of sync clients. Any thread may use it, but none that runs an event loop.

    Args:
        core: Used on the bridge's loop alone.
        library: Whose clients use it.
    """

    def __init__(self, core: Core, library: Any) -> None:
        self._core = core
        self._library = library

    def handle_request(self, request: Any) -> Any:
        """Return the answer to a request; its stream can be read without a loop."""
        raise_again(request)
        try:
            response = run_sync(self._core.exchange(request, is_streamed_by_client(self._library)))
        except BaseException as error:
            remember(request, error)
            raise
        if not isinstance(response.stream, self._library.SyncByteStream):
            response.stream = _sync_stream_class(self._library)(response.stream)
        return response

    def close(self) -> None:
        """Close the core."""
        run_sync(self._core.aclose())


class InThreads:
    """A sync transport with the methods of an asynchronous one."""

    def __init__(self, inner: Any, library: Any) -> None:
        self._inner = inner
        self._library = library

    async def handle_async_request(self, request: Any) -> Any:
        """Send the request in a thread."""
        response = await asyncio.to_thread(self._inner.handle_request, request)
        response.stream = _async_stream_class(self._library)(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the transport."""
        await asyncio.to_thread(self._inner.close)


@cache
def _sync_stream_class(library: Any) -> Any:
    class BridgedStream(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            pieces = self._stream.__aiter__()
            while (piece := run_sync(_next(pieces))) is not None:
                yield piece

        def close(self) -> None:
            run_sync(self._stream.aclose())

    return BridgedStream


@cache
def _async_stream_class(library: Any) -> Any:
    class ThreadedStream(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            pieces = iter(self._stream)
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece

        async def aclose(self) -> None:
            await asyncio.to_thread(self._stream.close)

    return ThreadedStream


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
