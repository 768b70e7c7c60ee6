"""A provider that knows one thing: how many calls it has had at once."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_ANSWER = b'{"ok":true}'
_PIECES = 4


class CountingProvider:
    """Answers every POST after some time; one to `/stream` in pieces, spread over that time.

    Args:
        seconds: How long a call takes.
    """

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.now = 0
        """Calls under way."""
        self.most = 0
        """Calls that were under way at once."""
        self.calls = 0
        self.arrived = asyncio.Condition()
        """Notified at each beginning and end."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()

    async def has(self, calls: int, *, within: float = 10.0) -> None:
        """Wait until so many calls are under way."""
        async with asyncio.timeout(within), self.arrived:
            await self.arrived.wait_for(lambda: self.now == calls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._moved(+1)
            try:
                await (self._stream(writer) if b" /stream " in head else self._answer(writer))
            finally:
                await self._moved(-1)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _moved(self, by: int) -> None:
        async with self.arrived:
            self.now += by
            self.calls += max(0, by)
            self.most = max(self.most, self.now)
            self.arrived.notify_all()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.seconds)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(_ANSWER)}"
        writer.write(head.encode() + b"\r\nconnection: close\r\n\r\n" + _ANSWER)

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for _ in range(_PIECES):
            await asyncio.sleep(self.seconds / _PIECES)
            writer.write(b'data: {"piece":1}\n\n')
            await writer.drain()
