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

from tidegate.errors import TaskNotFoundError, TidegateError
from tidegate.web.closing import first_of
from tidegate.web.guard import EVERYBODY, Answer, Guarded, Needs, principal_of
from tidegate.web.live import ServerSentEvent, Told, closed, pieces
from tidegate.web.problems import NO_STORE, Problem
from tidegate.web.room import Room, TaskId
from tidegate.web.shares import NoPlaceError
from tidegate.web.tokens import PROTOCOL

_MOST = 2**53
_DIGITS = 16
_SSE_HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}
_RECONNECT_MS = 1000
_LATER = 1013
_CODES = {"": 1000, "deleted": 1000, "token": 1008, "stopping": 1012, "store": _LATER}
"""Codes a socket is closed with, by reason (RFC 6455 and IANA's registry)."""
_LAST_SECONDS = 1.0
"""For the last event of a stream: who takes nothing in goes without it."""
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

        `state`, `chunk`, `progress`, `reset`, and one `end`. A stream that ends before its task does says
        why by `closed`. A chunk's id is its number: a client that reconnects sends it as `Last-Event-ID` (or
        `after`) and misses nothing.
        """
        task_id = (await room.row(task_id, principal_of(request))).id
        return EventStream(room, request, task_id, _resume_at(request, after))

    @api.socket("/api/v1/tasks/{task_id}/socket", Needs(EVERYBODY))
    async def task_socket(websocket: WebSocket, task_id: TaskId, after: AfterChunk = None) -> None:
        """Follow a task to its end by a WebSocket: one JSON object a message, as the events."""
        task_id = (await room.row(task_id, principal_of(websocket))).id
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


class _NoLongerAdmittedError(Exception):
    """The follower would not be let in now: its token was revoked or has expired."""


async def _parts(
    room: Room, connection: HTTPConnection, task_id: str, after: int
) -> AsyncGenerator[list[Told], None]:
    """Yield events as they are sent, several at once where there are; none wherever nothing happened.

    Raises:
        TidegateError: The task was deleted, or the store is away.
        _NoLongerAdmittedError: The client would not be let in now.
    """
    loop = asyncio.get_running_loop()
    watch = room.app.task_watch(await room.store())
    quiet = room.settings.heartbeat
    checked_at = loop.time()
    async with contextlib.aclosing(watch.follow_in_parts(task_id, after, quiet_seconds=quiet)) as parts:
        async for part in parts:
            if loop.time() - checked_at >= quiet:
                if not await room.still_admits(connection):
                    raise _NoLongerAdmittedError
                checked_at = loop.time()
            if not part:
                yield []
            async for piece in pieces(room, part):
                yield piece


async def _reason(following: Coroutine[Any, Any, None]) -> str:
    """Follow to the end; return why the stream ends before the task does, empty if it does not."""
    try:
        await following
    except _NoLongerAdmittedError:
        return "token"
    except TaskNotFoundError:
        return "deleted"
    except TidegateError:
        return "store"
    return ""


async def _stopping(room: Room) -> str:
    await room.closing.wait()
    return "stopping"


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
            with _counted(self._room, self._request), contextlib.suppress(TimeoutError):
                await self._send_all(receive, send)
        except Problem as problem:
            await problem.response(HTTPConnection(scope))(scope, receive, send)

    async def _send_all(self, receive: Receive, send: Send) -> None:
        limit = self._room.settings.send_limit
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await _send(send, head, limit)
        await _send(send, _body(b"retry: %d\n\n" % _RECONNECT_MS), limit)
        over = await first_of(
            f"tidegate events {self._task_id}",
            _reason(self._send_events(send)),
            _left(receive),
            _stopping(self._room),
        )
        if over.exception() is None and (reason := over.result()) is not None:
            last = _sse(closed(reason)) if reason else b""
            await _send(send, _body(last, is_last=True), min(_LAST_SECONDS, limit))

    async def _send_events(self, send: Send) -> None:
        coming = _parts(self._room, self._request, self._task_id, self._after)
        async with contextlib.aclosing(coming) as parts:
            async for part in parts:
                data = b"".join(map(_sse, part)) or b": alive\n\n"
                await _send(send, _body(data), self._room.settings.send_limit)


async def _send(send: Send, message: Message, seconds: float) -> None:
    async with asyncio.timeout(seconds):  # else it would hold its place for ever
        await send(message)


def _body(data: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}


def _sse(event: Told) -> bytes:
    number = f"id: {event.id}\n" if event.id else ""
    return f"{number}event: {event.name}\n".encode() + b"data: " + event.data + b"\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _serve_socket(room: Room, websocket: WebSocket, task_id: str, after: int) -> None:
    """Send a task's events until its end, or until the client goes or takes nothing in."""
    over = await first_of(
        f"tidegate socket {task_id}",
        _reason(_send_to(room, websocket, task_id, after)),
        _ignore(websocket),
        _stopping(room),
    )
    if isinstance(over.exception(), TimeoutError):
        await websocket.close(_LATER, "slow")
    elif over.exception() is None and (reason := over.result()) is not None:
        if reason:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LAST_SECONDS, room.settings.send_limit)):
                    await websocket.send_text(_message(closed(reason)))
        await websocket.close(_CODES[reason], reason or None)


async def _send_to(room: Room, websocket: WebSocket, task_id: str, after: int) -> None:
    async with contextlib.aclosing(_parts(room, websocket, task_id, after)) as parts:
        async for part in parts:
            for text in map(_message, part) if part else (_ALIVE,):
                async with asyncio.timeout(room.settings.send_limit):
                    await websocket.send_text(text)


def _message(event: Told) -> str:
    number = f'"id":"{event.id}",' if event.id else ""
    return f'{{"event":"{event.name}",{number}"data":{event.data.decode()}}}'


async def _ignore(websocket: WebSocket) -> None:
    """Read until the client goes; it has nothing to say."""
    with contextlib.suppress(RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
