"""One client connection: HTTP/1.1 by h11 over asyncio streams, with bounds on size and time."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

from tidegate.testing.provider.messages import Reply, Request

try:
    import h11
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the simulated provider needs h11 → pip install 'tidegate[testing]'", name="h11"
    ) from error

IDLE_SECONDS = 75.0
"""How long a kept-alive connection may be silent between requests."""
TRANSFER_SECONDS = 30.0
"""How long a request may take to arrive, and one part of a response to be sent."""
_LINGER_SECONDS = 1.0
_READ_BYTES = 64 * 1024


class MalformedError(Exception):
    """The input is not an acceptable HTTP request; the connection must end."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class HttpConnection:
    """Reads requests from one client and sends it replies, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.idle = True
        """Between two requests: closing now loses nothing."""
        self._reader = reader
        self._writer = writer
        self._h11 = h11.Connection(h11.SERVER)
        self._head_only = False

    @property
    def can_reply(self) -> bool:
        """Whether a reply can be sent now: none has started, and the connection is intact."""
        return self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    async def next_request(self, *, max_body_bytes: int) -> Request | None:
        """Wait for a complete request; None if the client disconnected or stayed idle.

        Raises:
            MalformedError: It is not HTTP, or its head, body or duration exceeds a limit.
            ConnectionError: The connection broke.
        """
        self.idle = True
        try:
            async with asyncio.timeout(IDLE_SECONDS) as limit:
                return await self._read_request(max_body_bytes, limit)
        except TimeoutError:
            if self.idle:
                return None
            raise MalformedError(408, "The request took too long to arrive.") from None
        except h11.RemoteProtocolError as error:
            if self.idle:
                return None
            raise MalformedError(error.error_status_hint, f"This is not valid HTTP: {error}") from error

    async def send(self, reply: Reply, *, last: bool) -> bool:
        """Send the reply; return whether the connection can carry another request.

        Raises:
            ConnectionError: The client disconnected before it had read everything.
        """
        headers = {"content-type": reply.content_type, **reply.headers}
        if not reply.chunks:
            headers["content-length"] = str(len(reply.body))
        if last:
            headers["connection"] = "close"
        head = h11.Response(status_code=reply.status, headers=list(headers.items()))
        if reply.chunks and not self._head_only:
            await self._write(head)
            await self._stream(reply)
            await self._write(h11.EndOfMessage())
        else:
            body = b"" if self._head_only else reply.body
            await self._write(head, h11.Data(data=body), h11.EndOfMessage())
        return self._begin_next_cycle()

    async def hang(self) -> None:
        """Keep the connection, discard its input, and return when the client disconnects."""
        while await self._reader.read(_READ_BYTES):
            pass

    async def linger(self) -> None:
        """Close the sending side and wait a little for the client, so that it can read the last reply.

        Closing with unread bytes in the buffer would make the system reset the connection.
        """
        self._writer.write_eof()
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self.hang()
        except TimeoutError:
            return

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def abort(self) -> None:
        """Close at once; what is not sent yet is dropped."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Send what is left and close. Safe to repeat, also after an error."""
        self._writer.close()
        try:
            async with asyncio.timeout(TRANSFER_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()

    async def _read_request(self, max_body_bytes: int, limit: asyncio.Timeout) -> Request | None:
        head = await self._next_event(limit)
        if not isinstance(head, h11.Request):
            return None
        self._head_only = head.method == b"HEAD"
        body = bytearray()
        while isinstance(event := await self._next_event(limit), h11.Data):
            body += event.data
            if len(body) > max_body_bytes:
                raise MalformedError(413, f"The request body is larger than {max_body_bytes} bytes.")
        if not isinstance(event, h11.EndOfMessage):
            return None
        self.idle = False
        return Request(
            method=head.method.decode("ascii"),
            target=head.target.decode("latin-1"),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers},
            body=bytes(body),
        )

    async def _next_event(self, limit: asyncio.Timeout) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._h11.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            if self._h11.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            data = await self._reader.read(_READ_BYTES)
            if data and self.idle:
                self.idle = False
                limit.reschedule(asyncio.get_running_loop().time() + TRANSFER_SECONDS)
            self._h11.receive_data(data)

    async def _stream(self, reply: Reply) -> None:
        for index, chunk in enumerate(reply.chunks):
            if index and reply.pause_seconds:
                await asyncio.sleep(reply.pause_seconds)
            await self._write(h11.Data(data=chunk))

    async def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._h11.send(event) or b"" for event in events))
        try:
            async with asyncio.timeout(TRANSFER_SECONDS):
                await self._writer.drain()
        except TimeoutError:
            raise ConnectionAbortedError("the client stopped reading") from None

    def _begin_next_cycle(self) -> bool:
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True
