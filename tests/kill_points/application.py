"""The task that is killed: steps one after the other, steps at the same time, recorded calls, and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import httpx2

from chaos.paid_calls import HONOURING, PLAIN, ask
from harness.paid_calls import PAID, PaidNote, Promise
from harness.steps import CallLog
from kill_points.points import KillPoints
from tidegate import Context, Fixed, Pool, Tidegate, Timings, Upstream

IN_A_ROW, SIDE_BY_SIDE, RECORDED = 4, 12, 12
"""Calls in steps one after the other, in steps at the same time, and recorded ones."""
CALLS = IN_A_ROW + SIDE_BY_SIDE + RECORDED
_SENT_SECONDS = 0.005
"""After this time the provider has a request, and has not answered it."""
_QUIET_SECONDS = 30.0
_POOL = Pool(concurrency=1, poll_interval=1.0)


class PointedTransport(httpx2.AsyncHTTPTransport):
    """Sends requests, and has points before, during and after each."""

    def __init__(self, points: KillPoints) -> None:
        super().__init__()
        self._points = points

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. The points end with the last byte of its response."""
        self._points.reach("before a call")
        sending = asyncio.create_task(super().handle_async_request(request))
        await asyncio.wait([sending], timeout=_SENT_SECONDS)
        self._points.reach("a call was sent")
        response = await sending
        self._points.reach("a call has its first bytes")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _PointedStream(response.stream, self._points)
        return response


class _PointedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, points: KillPoints) -> None:
        self._stream = stream
        self._points = points

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece
        self._points.reach("a call has its last byte")

    async def aclose(self) -> None:
        await self._stream.aclose()


class Album:
    """The application of one process.

    Args:
        url: The store.
        providers: The addresses of the providers by name.
        directory: Where the function writes its notes.
        points: Counts what the transports do.
        is_second: Whether this process comes after the kill: then its maintenance runs often.
    """

    def __init__(
        self, url: str, providers: dict[str, str], directory: Path, points: KillPoints, *, is_second: bool
    ) -> None:
        often = 0.1 if is_second else _QUIET_SECONDS
        timings = Timings(lease=_QUIET_SECONDS, beat=_QUIET_SECONDS / 3, reap=often, promote=often)
        self.app = Tidegate(url, pools=[_POOL], timings=timings)
        self._providers = providers
        self._points = points
        self._notes = CallLog(directory / PAID)
        recorded = self.app.upstream("recorded", record=True)
        asking = self.app.upstream("asking", record=True, in_doubt="ask")
        for promise, upstream in (
            (Promise.REPEATED, recorded),
            (Promise.ASKED, asking),
            (Promise.HONOURED, recorded),
        ):
            self._declare(promise, upstream)

    def _declare(self, promise: Promise, upstream: Upstream) -> None:
        async def draw(ctx: Context) -> list[str]:
            return await self._draw(ctx, promise, upstream)

        self.app.task(name=f"album:{promise}", backoff=Fixed(0.05), upstream=upstream)(draw)

    async def _draw(self, ctx: Context, promise: Promise, upstream: Upstream) -> list[str]:
        in_doubt: Literal["ask", "repeat"] = "ask" if promise is Promise.ASKED else "repeat"
        url = self._providers[HONOURING if promise is Promise.HONOURED else PLAIN]
        step_client, client = (
            httpx2.AsyncClient(transport=upstream.transport(PointedTransport(self._points), record=record))
            for record in (False, True)
        )

        async def in_step(item: int) -> str:
            async def call() -> str:
                return await ask(step_client, url, ctx.task_id, item, is_stream=item == 0)

            return await noted(item, ctx.step("draw", call, key=str(item), in_doubt=in_doubt))

        async def recorded(item: int) -> str:
            return await noted(item, ask(client, url, ctx.task_id, item, is_stream=item % 4 == 0))

        async def noted(item: int, call: object) -> str:
            def note(event: Literal["sent", "kept"], request_id: str = "") -> None:
                self._notes.write(PaidNote(event, ctx.task_id, ctx.run, item, CALLS, promise, request_id))

            note("sent")
            request_id: str = await call  # type: ignore[misc]
            note("kept", request_id)
            return request_id

        second = IN_A_ROW + SIDE_BY_SIDE
        async with step_client, client:
            return [
                *[await in_step(item) for item in range(IN_A_ROW)],
                *await asyncio.gather(*[in_step(item) for item in range(IN_A_ROW, second)]),
                *await asyncio.gather(*[recorded(item) for item in range(second, CALLS)]),
            ]
