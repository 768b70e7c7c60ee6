"""A provider that counts the calls that are under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tidegate.testing.provider.listener import HOST, ProviderListener

_PIECES = 4


class CountingProvider:
    """Answers every POST after some time. `/stream` answers in pieces that are spread over that time.

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
        self.changed = asyncio.Condition()
        """Notified when a call begins or ends."""

    async def __aenter__(self) -> Self:
        self._listener = ProviderListener(
            Starlette(
                routes=[
                    Route("/stream", self._stream, methods=["POST"]),
                    Route("/{path:path}", self._answer, methods=["POST"]),
                ]
            )
        )
        await self._listener.open(0)
        self.url = f"http://{HOST}:{self._listener.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    async def has_begun(self, calls: int, *, within: float = 10.0) -> None:
        """Wait until that many calls have begun."""
        async with asyncio.timeout(within), self.changed:
            await self.changed.wait_for(lambda: self.calls >= calls)

    async def _answer(self, _: Request) -> Response:
        async with self._under_way():
            await asyncio.sleep(self.seconds)
            return JSONResponse({"ok": True})

    async def _stream(self, _: Request) -> Response:
        return StreamingResponse(self._pieces(), media_type="text/event-stream")

    async def _pieces(self) -> AsyncIterator[bytes]:
        async with self._under_way():
            for _ in range(_PIECES):
                await asyncio.sleep(self.seconds / _PIECES)
                yield b'data: {"piece":1}\n\n'

    @asynccontextmanager
    async def _under_way(self) -> AsyncIterator[None]:
        await self._count(+1)
        try:
            yield
        finally:
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.now += change
            self.calls += max(0, change)
            self.most = max(self.most, self.now)
            self.changed.notify_all()
