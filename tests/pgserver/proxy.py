"""A network that fails: a TCP proxy in front of a server, which can cut connections or swallow what they carry."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pgserver.server import Server

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Passes bytes on in both directions, in the running loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._asks = asyncio.Event()
        self._answers = asyncio.Event()
        self._last_word: bytes | None = None
        self.forget()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return a database's URL through the proxy."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def cut(self) -> int:
        """Reset every connection; return how many there were. New ones can be made."""
        writers = list(self._writers)
        for writer in writers:
            if writer.transport.is_closing():
                continue
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            writer.transport.abort()
        return len(writers) // 2

    def swallow(self) -> None:
        """Pass nothing on from here, and close nothing: each side goes on waiting for the other."""
        self._asks.clear()
        self._answers.clear()

    def swallow_answer_to(self, word: bytes) -> None:
        """Pass no answer on from when a client has said this word."""
        self._last_word = word

    def forget(self) -> None:
        """Let new connections through; the old ones stay half open for ever, as after a router's restart."""
        for pipe in self._pipes:
            pipe.cancel()
        self._last_word = None
        self._asks.set()
        self._answers.set()

    async def stop(self) -> None:
        """End everything."""
        assert self._listening is not None
        self._listening.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        writers = list(self._writers)
        self.cut()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        pipe = asyncio.create_task(self._connect(reader, writer))
        self._pipes.add(pipe)
        pipe.add_done_callback(self._pipes.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._server.host, self._server.port)
        except OSError:
            self._writers.discard(writer)
            writer.close()
            return
        self._writers.add(back)
        await asyncio.gather(
            self._pass_on(reader, back, self._asks), self._pass_on(there, writer, self._answers)
        )

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, flows: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if flows is self._asks and self._last_word is not None and self._last_word in data:
                    self._answers.clear()
                await flows.wait()
                target.write(data)
                await target.drain()
        self._writers.discard(target)
        target.close()


@asynccontextmanager
async def proxied(server: Server) -> AsyncIterator[Proxy]:
    """A proxy in front of a server for the block."""
    proxy = Proxy(server)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
