"""The listening socket, which can be shut and opened again on the same port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

HOST = "127.0.0.1"
_BACKLOG = 1024

OnConnect = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class ProviderListener:
    """Listens on one loopback port. While it is shut, connecting is refused and the port stays ours."""

    def __init__(self, accept: OnConnect) -> None:
        self.port = 0
        """The port, once it was opened; kept until it is locked."""
        self._accept = accept
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
        try:
            self._server = await asyncio.start_server(self._accept, sock=listening, backlog=_BACKLOG)
        except BaseException:
            listening.close()
            raise
        self.port = listening.getsockname()[1]

    def refuse(self) -> None:
        """Refuse connections, keeping the port; those already made go on. Does nothing when shut."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        # Bound but not listening: the system refuses connections to it and gives the port to nobody else.
        self._placeholder = _bound(self.port)

    def close(self) -> None:
        """Stop listening and give the port back. Safe to repeat."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._close_placeholder()

    def _close_placeholder(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, port))
    except BaseException:
        bound.close()
        raise
    return bound
