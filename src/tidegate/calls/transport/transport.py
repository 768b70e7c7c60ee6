"""The transport that makes any SDK respect an upstream's limits: each call needs a permit.

It sits between an `httpx2.AsyncClient` (or one of `httpx`) and the transport that sends the requests:

    client = openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=upstream.transport()))

Errors and JSON responses are read completely before they are passed on, unless the request asked for a
stream. A stream is read while it is passed on, and its permit is settled at its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidegate.calls.limit_reports import limits_of
from tidegate.calls.permits import Permit, PermitSource
from tidegate.calls.requests import current_run, permit_request_for, remaining_times
from tidegate.calls.results import is_pool_timeout, result_of_error, run_to_end
from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.kept_response import KeptResponse
from tidegate.calls.transport.libraries import (
    is_streamed_by_client,
    library_of_transport,
    make_transport,
    time_limit,
)
from tidegate.calls.transport.recorded_call import RecordedCall, recorded_call
from tidegate.calls.transport.redirects import remember_origin
from tidegate.calls.transport.requests import prepare_request, sizes_of_request, wants_stream
from tidegate.calls.transport.responses import (
    check_complete,
    is_buffered,
    is_page_instead_of_answer,
    replace_with_not_found,
    result_of_response,
)
from tidegate.calls.transport.sdk_retries import remember_error, reraise_first_error
from tidegate.calls.transport.streams import StreamedResponse
from tidegate.calls.transport.sync import SyncTransport, ThreadedTransport
from tidegate.domain.calls import CallResult
from tidegate.domain.usage import HeaderLimit

if TYPE_CHECKING:
    import httpx
    import httpx2

    class _ClientTransport(
        httpx2.AsyncBaseTransport, httpx2.BaseTransport, httpx.AsyncBaseTransport, httpx.BaseTransport
    ):
        """The type that clients of both libraries accept.

        Only type checkers need both libraries installed.
        """

        async def handle_async_request(self, request: Any) -> Any: ...
        def handle_request(self, request: Any) -> Any: ...
        async def aclose(self) -> None: ...
        def close(self) -> None: ...
        async def __aenter__(self) -> Self: ...
        async def __aexit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None: ...
        def __enter__(self) -> Self: ...
        def __exit__(self, kind: Any = None, error: Any = None, traceback: Any = None) -> None: ...

else:
    _ClientTransport = object


StandIn = Callable[[Any], Any]
"""A function that returns an asynchronous transport of a library: `httpx2` or `httpx`."""


def _no_stand_in() -> None:
    return None


class UpstreamTransport(_ClientTransport):
    """A transport for async and sync clients of `httpx2` and `httpx`.

    Use one transport per client: connections belong to the event loop in which they were made.

    Args:
        permits: The source of permits.
        settings: The settings of calls.
        inner: The transport that sends the requests. None makes a new `AsyncHTTPTransport` of `httpx2`, or of
            `httpx` if `httpx2` is not installed.
        stand_in: Returns a function that makes the transport for the next request; None to use `inner`. For
            tests.

    Raises:
        ConfigError: Neither library is installed, or `inner` belongs to neither.
    """

    def __init__(
        self,
        permits: PermitSource,
        settings: CallSettings,
        inner: Any = None,
        *,
        stand_in: Callable[[], StandIn | None] = _no_stand_in,
    ) -> None:
        self._permits = permits
        self._settings = settings
        inner = make_transport() if inner is None else inner
        self._library = library_of_transport(inner)
        is_async = hasattr(inner, "handle_async_request")
        self._inner = inner if is_async else ThreadedTransport(inner, self._library)
        self._sync = SyncTransport(self, self._library)
        self._stand_in = stand_in

    async def handle_async_request(self, request: Any) -> Any:
        """Wait for a permit, send the request, and return the response.

        Raises:
            UpstreamParkedError: The gate is closed; nothing was sent.
            CallTooLargeError: The call exceeds a limit and can never be admitted; nothing was sent.
            TaskStopped: The run that makes the call has ended; nothing was sent.
            Exception: Any error of the inner transport, and its library's `ReadTimeout` if the call takes too
                long.
        """
        reraise_first_error(request)
        try:
            return await self.exchange(request, is_streamed_by_client(self._library))
        except BaseException as error:
            remember_error(request, error)
            raise

    def handle_request(self, request: Any) -> Any:
        """Do the same as `handle_async_request` for a sync client.

        Raises:
            UsageError: The call was made inside an event loop, which it would block.
            TaskStopped: The run was asked to stop. The call was aborted but may have been processed.
        """
        return self._sync.handle_request(request)

    async def exchange(self, request: Any, is_streamed_by_client: bool) -> Any:
        """Do the same as `handle_async_request`, without a check for an SDK's own retries.

        Args:
            request: The client's request.
            is_streamed_by_client: Whether the client reads the response as a stream.
        """
        call = recorded_call(request, self._settings)
        if call is None:
            return await self._exchange(request, is_streamed_by_client, None)
        try:
            kept = await call.find()
            if kept is not None:
                return kept.response(self._library, request)
            return await self._exchange(request, is_streamed_by_client, call)
        except BaseException:
            await call.abandon()
            raise

    async def _exchange(self, request: Any, is_streamed_by_client: bool, call: RecordedCall | None) -> Any:
        sizes = sizes_of_request(request)
        permit = await self._permits.acquire(permit_request_for(sizes, self._settings, host=request.url.host))
        response = await self._call(request, permit, is_streamed_by_client, call)
        remember_origin(request, response)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    def close(self) -> None:
        """Close the inner transport."""
        self._sync.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    async def _call(
        self, request: Any, permit: Permit, is_streamed_by_client: bool, call: RecordedCall | None
    ) -> Any:
        host, sent_at, is_asked_for = request.url.host, None, wants_stream(request)
        try:
            current_run()  # this raises if the run ended while the call waited for its permit
            times = remaining_times(self._settings.times)
            prepare_request(
                request,
                self._settings,
                permit,
                times,
                is_stream_asked_for=is_asked_for,
                identity=None if call is None else call.identity,
            )
            if call is not None and (kept := await call.begin()) is not None:
                await run_to_end(permit.release())
                return kept.response(self._library, request)
            await permit.mark_sending()
            sent_at = time.monotonic()
            async with time_limit(self._library, times.seconds, request):
                response = await self._sender().handle_async_request(request)
                permit.observe_limits(self._limits_of(response, host))
                is_page = is_page_instead_of_answer(request, response)
                read_whole = is_page or is_buffered(
                    response,
                    is_stream_asked_for=is_asked_for,
                    is_streamed_by_client=is_streamed_by_client,
                )
                body = await self._read(response) if read_whole else None
                if body is not None and is_page:
                    body = replace_with_not_found(request, response, self._library)
                elif body is not None:
                    check_complete(response, body, self._library, request)
        except BaseException as error:
            await self._end_with_error(permit, error, sent_at, call)
            raise
        seconds = time.monotonic() - sent_at
        if body is None:
            if call is not None:
                call.give_stream()
            response.stream = StreamedResponse(
                library=self._library,
                request=request,
                response=response,
                permit=permit,
                settings=self._settings,
                idle_seconds=times.idle_seconds,
                seconds=seconds,
                is_asked_for=is_asked_for,
                call=call,
            ).stream()
            return response
        end = result_of_response(response, body, self._settings, host, seconds=seconds)
        try:
            kept = None if call is None else await self._record(call, response, end)
        finally:
            await run_to_end(permit.settle(end))
        return response if kept is None else kept.response(self._library, request)

    async def _record(self, call: RecordedCall, response: Any, end: CallResult) -> KeptResponse | None:
        """Record how a call ended whose response was read completely.

        Returns:
            The response that counts, if another run has recorded one first; otherwise None.
        """
        if end.failure is None and response.status_code < 300:
            return await call.keep(response, b"".join(response.stream), end.usage)
        await call.fail(end)
        return None

    def _sender(self) -> Any:
        """Return the transport that sends the next request."""
        stand_in = self._stand_in()
        return self._inner if stand_in is None else stand_in(self._library)

    def _limits_of(self, response: Any, host: str) -> tuple[HeaderLimit, ...]:
        headers, status = response.headers.multi_items(), response.status_code
        return limits_of(headers, status=status, host=host, provider=self._settings.provider_name)

    async def _read(self, response: Any) -> bytes:
        """Read the whole body and return it decoded. The response keeps the body in its original encoding."""
        try:
            raw = b"".join([piece async for piece in response.stream])
        finally:
            await response.stream.aclose()
        response.stream = self._library.ByteStream(raw)
        copy = self._library.Response(200, headers=response.headers, stream=self._library.ByteStream(raw))
        try:
            decoded: bytes = copy.read()
        except self._library.DecodingError:
            return raw
        return decoded

    async def _end_with_error(
        self, permit: Permit, error: BaseException, sent_at: float | None, call: RecordedCall | None
    ) -> None:
        if sent_at is None or is_pool_timeout(error):
            await run_to_end(permit.release())
            return  # `exchange` ends a recorded call that was not sent
        end = result_of_error(error, self._settings, seconds=time.monotonic() - sent_at)
        try:
            if call is not None:
                await call.fail(end)
        finally:
            await run_to_end(permit.settle(end))
