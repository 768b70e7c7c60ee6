"""The provider's port, served by uvicorn: it can be shut and opened again, and its connections reset.

`uvicorn.Server` opens its port once and waits for calls in progress when it ends. An outage shuts the port
and opens it again, and the end of a test waits for nothing. So the port is opened here, with uvicorn's
protocol for each connection.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import sys
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tidegate.testing.provider.refusals import invalid_request

HOST = "127.0.0.1"
_BACKLOG = 1024
_IDLE_SECONDS = 75
"""How long a kept-alive connection may be silent between requests."""
_LINGER_SECONDS = 1.0


class ProviderConnection(H11Protocol):
    """uvicorn's connection, which can also be reset, and which refuses malformed HTTP with JSON.

    The application finds it in the `state` of a request's scope, as `connection`.
    """

    def __init__(self, config: uvicorn.Config, server_state: ServerState, **options: Any) -> None:
        super().__init__(config, server_state, {"connection": self}, **options)
        self.access_log = False
        self._is_ending = False

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        connected: socket.socket = self.transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass on what arrives, until the last response is sent."""
        if not self._is_ending:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP, and give the client a moment to read why."""
        fault = sys.exception()
        if not isinstance(fault, h11.RemoteProtocolError) or self.conn.our_state not in _CAN_RESPOND:
            self.transport.abort()
            return
        response = invalid_request(
            f"This is not valid HTTP: {fault}", status=fault.error_status_hint
        ).response()
        head = h11.Response(
            status_code=response.status_code, headers=[*response.raw_headers, (b"connection", b"close")]
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        # Closing with unread bytes in the buffer would make the system reset the connection.
        self._is_ending = True
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


_CAN_RESPOND = (h11.IDLE, h11.SEND_RESPONSE)


class ProviderListener:
    """Listens on one loopback port. While it is shut, connecting is refused and the port stays ours.

    Args:
        app: The ASGI application that answers the requests. It may raise `ClientDisconnect`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.port = 0
        """The port; 0 before the first `open`."""
        self._app = app
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._call,
            http=ProviderConnection,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        self._server: asyncio.Server | None = None
        self._placeholder: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    async def open(self, port: int) -> None:
        """Listen on `port`, 0 for any free one. Does nothing when open.

        Raises:
            OSError: The port is taken.
        """
        if self._server is not None:
            return
        self._close_placeholder()
        listening = _bound(port)
        connect = functools.partial(ProviderConnection, self._config, self._state)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(connect, sock=listening, backlog=_BACKLOG)
        except BaseException:
            listening.close()
            raise
        self.port = listening.getsockname()[1]

    def refuse(self) -> None:
        """Refuse connections, keeping the port; calls in progress go on. Does nothing when shut."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        # Bound but not listening: the system refuses connections to it and gives the port to nobody else.
        self._placeholder = _bound(self.port)
        for connection in list(self._state.connections):
            connection.shutdown()

    async def close(self) -> None:
        """Release the port, close every connection and cancel every call. Safe to repeat."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._close_placeholder()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # The protocols learn of it in the next turn of the loop, before their calls.
        calls = list(self._state.tasks)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except (ClientDisconnect, asyncio.CancelledError):
            return  # Nobody reads a response: the client disconnected, or `close` closed its connection.

    def _close_placeholder(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


def _bound(port: int) -> socket.socket:
    # asyncio switches Nagle's delay off only for connections whose socket names its protocol.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound
