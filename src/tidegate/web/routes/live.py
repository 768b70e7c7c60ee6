"""Following a task live: server-sent events, and a WebSocket with the same events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from tidegate.errors import TidegateError
from tidegate.web.guard import EVERYBODY, Answer, Guarded, Needs, principal_of
from tidegate.web.live import ServerSentEvent, Told, told
from tidegate.web.problems import NO_STORE, Problem
from tidegate.web.room import Room, TaskId
from tidegate.web.shares import NoPlaceError
from tidegate.web.tokens import PROTOCOL

_MOST = 2**53
_DIGITS = 16
_SSE_HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}
_RECONNECT_MS = 1000
_ENDED, _NOT_ALLOWED, _LATER = 1000, 1008, 1013
"""Codes a socket is closed with."""
_ALIVE = '{"event":"alive"}'

AfterChunk = Annotated[
    int | None, Query(ge=0, le=_MOST, description="Number of the last chunk that is known already.")
]


def add(api: Guarded, room: Room) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/events",
        Needs(EVERYBODY),
        answers={200: Answer("The events", ServerSentEvent)},
        media_type="text/event-stream",
    )
    async def task_events(request: Request, task_id: TaskId, after: AfterChunk = None) -> Response:
        """Follow a task to its end by server-sent events.

        `state`, `chunk`, `progress`, `reset`, and one `end`. A chunk's id is its number: a client that
        reconnects sends it as `Last-Event-ID` (or `after`) and misses nothing.
        """
        await room.row(task_id, principal_of(request))
        return EventStream(room, request, task_id, _resume_at(request, after))

    @api.socket("/api/v1/tasks/{task_id}/socket", Needs(EVERYBODY))
    async def task_socket(websocket: WebSocket, task_id: TaskId, after: AfterChunk = None) -> None:
        """Follow a task to its end by a WebSocket: one JSON object a message, as the events."""
        await room.row(task_id, principal_of(websocket))
        with _counted(room, websocket):
            offered = websocket.scope.get("subprotocols", [])
            await websocket.accept(PROTOCOL if PROTOCOL in offered else None)
            await _serve_socket(room, websocket, task_id, _resume_at(websocket, after))


def _resume_at(connection: HTTPConnection, after: int | None) -> int:
    """Return the number of the last chunk a client knows.

    Raises:
        Problem: Its Last-Event-ID is no chunk's number.
    """
    given = connection.headers.get("last-event-id", "").strip()
    if not given:
        return after or 0
    if not (given.isascii() and given.isdigit()) or len(given) > _DIGITS:
        raise Problem("last-event-id")
    return int(given)


@contextlib.contextmanager
def _counted(room: Room, connection: HTTPConnection) -> Iterator[None]:
    """Count one follower for the block.

    Raises:
        Problem: There are too many, of all or of its token or tenant.
    """
    try:
        with room.followers.take(principal_of(connection)):
            yield
    except NoPlaceError:
        raise Problem("too-many-followers", headers={"Retry-After": "5"}) from None


async def _parts(
    room: Room, connection: HTTPConnection, task_id: str, after: int
) -> AsyncGenerator[list[Told], None]:
    """Yield events as they are sent, several at once where there are; none wherever nothing happened.

    Ends without an end where the client would be let in no more: its token was revoked.
    """
    loop = asyncio.get_running_loop()
    watch = room.app.task_watch(await room.store())
    quiet = room.settings.heartbeat
    checked_at = loop.time()
    async with contextlib.aclosing(watch.follow_in_parts(task_id, after, quiet_seconds=quiet)) as parts:
        async for part in parts:
            if loop.time() - checked_at >= quiet:
                if not await room.still_admits(connection):
                    return
                checked_at = loop.time()
            yield [told(event) for event in part]


class EventStream(Response):
    """Sends a task's events until its end, or until the client goes or takes nothing in.

    Args:
        room: Where the task is.
        request: Who asked.
        task_id: Which, known to be within the client's sight.
        after: Number of the last chunk it knows.
    """

    media_type = "text/event-stream"

    def __init__(self, room: Room, request: Request, task_id: str, after: int) -> None:
        super().__init__(headers=_SSE_HEADERS)
        del self.headers["content-length"]
        self._room = room
        self._request = request
        self._task_id = task_id
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it is over, one way or another."""
        try:
            with _counted(self._room, self._request):
                work = (self._send_all(send), _left(receive), self._room.closing.wait())
                if await _first_of(f"tidegate events {self._task_id}", *work):
                    await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except Problem as problem:
            await problem.response(HTTPConnection(scope))(scope, receive, send)

    async def _send_all(self, send: Send) -> None:
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._send(send, head)
        await self._send(send, _body(b"retry: %d\n\n" % _RECONNECT_MS))
        with contextlib.suppress(TidegateError):  # deleted, or the store is away: the client comes again
            coming = _parts(self._room, self._request, self._task_id, self._after)
            async with contextlib.aclosing(coming) as parts:
                async for part in parts:
                    await self._send(send, _body(b"".join(map(_sse, part)) or b": alive\n\n"))

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._room.settings.send_limit):  # else it would hold its place for ever
            await send(message)


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _sse(event: Told) -> bytes:
    number = f"id: {event.id}\n" if event.id else ""
    return f"{number}event: {event.name}\n".encode() + b"data: " + event.data + b"\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _serve_socket(room: Room, websocket: WebSocket, task_id: str, after: int) -> None:
    sending = _send_to(room, websocket, task_id, after)
    await _first_of(f"tidegate socket {task_id}", sending, _ignore(websocket))


async def _first_of(name: str, *work: Coroutine[Any, Any, object]) -> bool:
    """Do several things until one is over, and leave the others; return whether it ended well."""
    jobs = [asyncio.create_task(one, name=name) for one in work]
    try:
        over, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        return all(job.exception() is None for job in over)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


async def _send_to(room: Room, websocket: WebSocket, task_id: str, after: int) -> None:
    code = _NOT_ALLOWED  # unless it ends, or the store fails
    try:
        async with contextlib.aclosing(_parts(room, websocket, task_id, after)) as parts:
            async for part in parts:
                code = _ENDED if part and part[-1].name == "end" else code
                for text in map(_message, part) if part else (_ALIVE,):
                    async with asyncio.timeout(room.settings.send_limit):
                        await websocket.send_text(text)
    except TidegateError:
        code = _LATER
    await websocket.close(code)


def _message(event: Told) -> str:
    number = f'"id":"{event.id}",' if event.id else ""
    return f'{{"event":"{event.name}",{number}"data":{event.data.decode()}}}'


async def _ignore(websocket: WebSocket) -> None:
    """Read until the client goes; it has nothing to say."""
    with contextlib.suppress(RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
