"""Serves sync clients: it runs the asynchronous transport on the bridge's event loop.

If the inner transport is sync (such as `httpx2.HTTPTransport`), it runs in threads, so that our time limits
apply to it too. Each call in flight has a thread of its own: a wait for a thread would use up its time limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import cache
from typing import Any, Protocol, TypeVar

from tidegate.calls.transport.libraries import is_streamed_by_client
from tidegate.calls.transport.sdk_retries import remember_error, reraise_first_error
from tidegate.context import Context, current_context
from tidegate.errors import UsageError
from tidegate.threads.bridge import run_sync
from tidegate.threads.daemon_threads import DaemonThreadPool, FunctionRaised

T = TypeVar("T")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread of its own."""


class Core(Protocol):
    """The asynchronous transport."""

    def exchange(self, request: Any, is_streamed_by_client: bool) -> Coroutine[Any, Any, Any]:
        """Return the response to a request."""
        ...

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Close the inner transport."""
        ...


class SyncTransport:
    """Handles the requests of sync clients. Any thread may use it, except one that runs an event loop.

    Args:
        core: The asynchronous transport. The transport is used on the bridge's loop only.
        library: The HTTP library of the clients.
    """

    def __init__(self, core: Core, library: Any) -> None:
        self._core = core
        self._library = library

    def handle_request(self, request: Any) -> Any:
        """Return the response to a request. The response's stream can be read without an event loop.

        Raises:
            UsageError: The method was called inside an event loop.
            TaskStopped: The run was asked to stop during the call.
        """
        _check_no_loop()
        reraise_first_error(request)
        try:
            response = _run(self._core.exchange(request, is_streamed_by_client(self._library)))
        except BaseException as error:
            remember_error(request, error)
            raise
        if not isinstance(response.stream, self._library.SyncByteStream):
            response.stream = _sync_stream_class(self._library)(response.stream)
        return response

    def close(self) -> None:
        """Close the asynchronous transport."""
        run_sync(self._core.aclose())


class ThreadedTransport:
    """A sync transport with the methods of an asynchronous one."""

    def __init__(self, inner: Any, library: Any) -> None:
        self._inner = inner
        self._library = library

        self._threads = DaemonThreadPool("tidegate-call")

    async def handle_async_request(self, request: Any) -> Any:
        """Send the request in a thread of its own."""
        is_left = threading.Event()

        def send() -> Any:
            response = self._inner.handle_request(request)
            if is_left.is_set():
                response.stream.close()  # the caller was cancelled and does not use the response
            return response

        try:
            response = await self._in_thread(send)
        except asyncio.CancelledError:
            is_left.set()
            raise
        response.stream = _async_stream_class(self._library)(response.stream, self._in_thread)
        return response

    async def aclose(self) -> None:
        """Close the transport."""
        await self._in_thread(self._inner.close)
        self._threads.close()

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        try:
            return await self._threads.run(function)
        except FunctionRaised as raised:
            raise raised.error from raised.error.__cause__


@cache
def _sync_stream_class(library: Any) -> Any:
    class BridgedStream(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            pieces = self._stream.__aiter__()
            while (piece := _run(_next(pieces))) is not None:
                yield piece

        def close(self) -> None:
            run_sync(self._stream.aclose())

    return BridgedStream


@cache
def _async_stream_class(library: Any) -> Any:
    class ThreadedStream(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, in_thread: InThread) -> None:
            self._stream = stream
            self._in_thread = in_thread

        async def __aiter__(self) -> AsyncIterator[bytes]:
            pieces = iter(self._stream)
            while (piece := await self._in_thread(lambda: next(pieces, None))) is not None:
                yield piece

        async def aclose(self) -> None:
            await self._in_thread(self._stream.close)

    return ThreadedStream


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a part of a call to its end; abort it when the call's run is asked to stop.

    Raises:
        TaskStopped: The run was asked to stop.
    """
    run = current_context()
    return run_sync(work if run is None else _abort_on_stop(run, work))


async def _abort_on_stop(run: Context, work: Coroutine[Any, Any, T]) -> T:
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(work)
    is_interrupted = threading.Event()

    def abort() -> None:
        is_interrupted.set()
        loop.call_soon_threadsafe(running.cancel)

    with run.abort_on_stop(abort):
        try:
            return await running
        except asyncio.CancelledError:
            if is_interrupted.is_set():
                run.raise_stop()
            raise


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "a sync HTTP client was used inside an event loop, which it would block: "
        "an SDK's sync class (such as OpenAI or Anthropic) or httpx.Client in an async def",
        fix="use the async class (AsyncOpenAI, AsyncAnthropic, httpx.AsyncClient), "
        "or make the task a plain def",
    )


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
