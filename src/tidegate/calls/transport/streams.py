"""A streamed response, which is read while it is passed to the client. Its permit is settled at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import cache
from typing import Any

from tidegate.calls.permits import Permit
from tidegate.calls.results import result_of_error, run_to_end
from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.libraries import time_limit
from tidegate.calls.transport.recorded_call import RecordedCall
from tidegate.calls.transport.responses import content_type, is_document
from tidegate.calls.transport.stream_reader import StreamReader
from tidegate.domain.calls import CallResult
from tidegate.providers.aws_frames import CONTENT_TYPE as AWS_EVENT_STREAM
from tidegate.providers.aws_frames import AwsFrames


class StreamedResponse:
    """The pieces of one streamed response.

    Args:
        library: The HTTP library of the client.
        request: The request that is answered.
        response: The inner transport's response.
        permit: Settled when the stream ends, breaks off, or is closed early.
        settings: The settings of the call.
        idle_seconds: The longest wait for the next piece.
        seconds: The time from sending to the first byte.
        is_asked_for: Whether the request asked the provider for a stream.
        call: Records the response; None if it is not recorded.
    """

    def __init__(
        self,
        *,
        library: Any,
        request: Any,
        response: Any,
        permit: Permit,
        settings: CallSettings,
        idle_seconds: float,
        seconds: float,
        is_asked_for: bool,
        call: RecordedCall | None = None,
    ) -> None:
        self._library = library
        self._request = request
        self._source = response.stream
        self._status: int = response.status_code
        self._permit = permit
        self._settings = settings
        self._idle_seconds = idle_seconds
        self._seconds = seconds
        kind = content_type(response)
        self._reader = StreamReader(
            settings,
            request.url.host,
            readable=response.headers.get("content-encoding", "identity") == "identity",
            frames=AwsFrames() if kind == AWS_EVENT_STREAM else None,
            is_document=is_document(response),
            is_event_stream=is_asked_for and kind == "text/event-stream",
        )
        self._ended = False
        self._response = response
        self._call = call
        self._received = None if call is None else Received(call.max_bytes)

    def stream(self) -> Any:
        """Return the response as a stream object of the library."""
        return _stream_class(self._library)(self)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they come.

        Raises:
            Exception: The library's `RemoteProtocolError`, if the stream ends before its protocol allows.
                The client got a part of the response, and the provider may bill all of it.
        """
        source = self._source.__aiter__()
        while True:
            self._permit.extend_lease(self._idle_seconds)
            try:
                reading = nullcontext() if self._call is None else self._call.reading()
                with reading:
                    async with time_limit(self._library, self._idle_seconds, self._request):
                        piece = await anext(source)
            except StopAsyncIteration:
                break
            except BaseException as error:
                await self._settle(result_of_error(error, self._settings, seconds=self._seconds))
                raise
            self._reader.feed(piece)
            if self._received is not None:
                self._received.add(piece)
            yield piece
        self._reader.finish()
        if not self._reader.missing_end:
            await self._settle(self._result(), is_complete=True)
            return
        broken = self._library.RemoteProtocolError(self._reader.missing_end, request=self._request)
        if self._reader.failure is not None:  # the stream itself has reported why it broke off
            await self._settle(self._result())
        else:
            await self._settle(result_of_error(broken, self._settings, seconds=self._seconds))
        raise broken

    async def aclose(self) -> None:
        """Close the connection. A stream that the client closes early counts as a success."""
        try:
            await self._source.aclose()
        finally:
            await self._settle(self._result(), is_complete=self._reader.has_ended)

    def _result(self) -> CallResult:
        return CallResult(self._reader.failure, self._status, self._reader.usage, self._seconds)

    async def _settle(self, end: CallResult, *, is_complete: bool = False) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            if self._call is not None:
                await self._record(self._call, end, is_complete=is_complete)
        finally:
            await run_to_end(self._permit.settle(end))

    async def _record(self, call: RecordedCall, end: CallResult, *, is_complete: bool) -> None:
        if end.failure is not None or self._status >= 300:
            await call.fail(end, self._reader.usage)
        elif is_complete:
            body = None if self._received is None else self._received.whole()
            await call.keep(self._response, body, self._reader.usage)
        else:
            await call.cut_off("its stream was closed before its end", self._reader.usage)


class Received:
    """The bytes of a stream so far, up to a size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Keep the next piece. If the size is exceeded, nothing is kept."""
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def whole(self) -> bytes | None:
        """Return the bytes; None if they are more than the size."""
        return None if self._size > self._max_bytes else b"".join(self._pieces)


@cache
def _stream_class(library: Any) -> Any:
    """Return a stream class that this library's client accepts."""

    class ForwardedStream(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, passing: StreamedResponse) -> None:
            self._passing = passing

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._passing.pieces()

        async def aclose(self) -> None:
            await self._passing.aclose()

    return ForwardedStream
