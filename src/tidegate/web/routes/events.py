"""Routes that follow a task live by server-sent events, or by a WebSocket with the same events."""

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
from tidegate.web.api_context import ApiContext, TaskId
from tidegate.web.capacity import NoCapacityError
from tidegate.web.events import EncodedEvent, ServerSentEvent, closing_event, encode_events
from tidegate.web.problems import NO_STORE, Problem
from tidegate.web.protected_routes import ALL_ROLES, AccessRule, ProtectedRouter, ResponseSpec, principal_of
from tidegate.web.shutdown import first_completed
from tidegate.web.tokens import PROTOCOL

_MAX_SEQUENCE = 2**53
_DIGITS = 16
_SSE_HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}
_RECONNECT_MS = 1000
_TRY_AGAIN_LATER = 1013
_CODES = {"": 1000, "deleted": 1000, "token": 1008, "stopping": 1012, "store": _TRY_AGAIN_LATER}
"""The close codes of a WebSocket, by reason (RFC 6455 and IANA's registry)."""
_LAST_EVENT_SECONDS = 1.0
"""How long sending the last event of a stream may take. A client that reads nothing does not get this
event."""
_KEEP_ALIVE = '{"event":"alive"}'

AfterChunk = Annotated[
    int | None, Query(ge=0, le=_MAX_SEQUENCE, description="Number of the last chunk that the client has.")
]


def add_routes(api: ProtectedRouter, context: ApiContext) -> None:
    """Register the routes."""

    @api.route(
        "GET",
        "/api/v1/tasks/{task_id}/events",
        AccessRule(ALL_ROLES),
        responses={200: ResponseSpec("The events", ServerSentEvent)},
        media_type="text/event-stream",
    )
    async def task_events(request: Request, task_id: TaskId, after: AfterChunk = None) -> Response:
        """Follow a task to its end by server-sent events.

        The events are `state`, `chunk`, `progress`, `reset`, and one `end`. A stream that ends before its
        task sends `closed` with the reason. The id of a `chunk` is its number. A client that sends this
        number as `Last-Event-ID` (or `after`) when it reconnects misses no chunk.
        """
        task_id = (await context.row(task_id, principal_of(request))).id
        return EventStream(context, request, task_id, _resume_at(request, after))

    @api.websocket_route("/api/v1/tasks/{task_id}/socket", AccessRule(ALL_ROLES))
    async def task_socket(websocket: WebSocket, task_id: TaskId, after: AfterChunk = None) -> None:
        """Follow a task to its end by a WebSocket. Each message is one event as a JSON object."""
        task_id = (await context.row(task_id, principal_of(websocket))).id
        with _count_follower(context, websocket):
            offered = websocket.scope.get("subprotocols", [])
            await websocket.accept(PROTOCOL if PROTOCOL in offered else None)
            await _serve_socket(context, websocket, task_id, _resume_at(websocket, after))


def _resume_at(connection: HTTPConnection, after: int | None) -> int:
    """Return the number of the last chunk that the client has.

    Raises:
        Problem: The Last-Event-ID is not the number of a chunk.
    """
    given = connection.headers.get("last-event-id", "").strip()
    if not given:
        return after or 0
    if not (given.isascii() and given.isdigit()) or len(given) > _DIGITS:
        raise Problem("last-event-id")
    return int(given)


@contextlib.contextmanager
def _count_follower(context: ApiContext, connection: HTTPConnection) -> Iterator[None]:
    """Count one follower for the block.

    Raises:
        Problem: There are too many followers, in total or of this token or tenant.
    """
    try:
        with context.followers.take(principal_of(connection)):
            yield
    except NoCapacityError:
        raise Problem("too-many-followers", headers={"Retry-After": "5"}) from None


class _AccessRevokedError(Exception):
    """The follower's token was revoked or has expired."""


async def _event_batches(
    context: ApiContext, connection: HTTPConnection, task_id: str, after: int
) -> AsyncGenerator[list[EncodedEvent], None]:
    """Yield batches of encoded events; an empty batch after each heartbeat interval without an event.

    Raises:
        TidegateError: The task was deleted, or the store cannot be reached.
        _AccessRevokedError: The client would not be admitted now.
    """
    loop = asyncio.get_running_loop()
    watcher = context.core.task_watcher(await context.store())
    idle_seconds = context.settings.heartbeat
    checked_at = loop.time()
    async with contextlib.aclosing(
        watcher.follow_in_batches(task_id, after, idle_seconds=idle_seconds)
    ) as batches:
        async for batch in batches:
            if loop.time() - checked_at >= idle_seconds:
                if not await context.is_still_admitted(connection):
                    raise _AccessRevokedError
                checked_at = loop.time()
            if not batch:
                yield []
            async for encoded in encode_events(context, batch):
                yield encoded


async def _closing_reason(following: Coroutine[Any, Any, None]) -> str:
    """Follow a task to its end.

    If the stream ends before the task, return the reason; otherwise an empty text.
    """
    try:
        await following
    except _AccessRevokedError:
        return "token"
    except TaskNotFoundError:
        return "deleted"
    except TidegateError:
        return "store"
    return ""


async def _shutdown_reason(context: ApiContext) -> str:
    await context.shutdown.wait()
    return "stopping"


class EventStream(Response):
    """Sends the events of a task until it ends, the client disconnects, or the client reads too slowly.

    Args:
        context: The context of the API.
        request: The request.
        task_id: The task's full id. The caller has checked that the client may see it.
        after: The number of the last chunk that the client has.
    """

    media_type = "text/event-stream"

    def __init__(self, context: ApiContext, request: Request, task_id: str, after: int) -> None:
        super().__init__(headers=_SSE_HEADERS)
        del self.headers["content-length"]
        self._context = context
        self._request = request
        self._task_id = task_id
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, or the problem if there are too many followers."""
        try:
            with _count_follower(self._context, self._request), contextlib.suppress(TimeoutError):
                await self._send_all(receive, send)
        except Problem as problem:
            await problem.response(HTTPConnection(scope))(scope, receive, send)

    async def _send_all(self, receive: Receive, send: Send) -> None:
        limit = self._context.settings.send_limit
        head: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await _send(send, head, limit)
        await _send(send, _body(b"retry: %d\n\n" % _RECONNECT_MS), limit)
        completed = await first_completed(
            f"tidegate events {self._task_id}",
            _closing_reason(self._send_events(send)),
            _wait_for_disconnect(receive),
            _shutdown_reason(self._context),
        )
        if completed.exception() is None and (reason := completed.result()) is not None:
            last = _sse(closing_event(reason)) if reason else b""
            await _send(send, _body(last, is_last=True), min(_LAST_EVENT_SECONDS, limit))

    async def _send_events(self, send: Send) -> None:
        events = _event_batches(self._context, self._request, self._task_id, self._after)
        async with contextlib.aclosing(events) as batches:
            async for batch in batches:
                data = b"".join(map(_sse, batch)) or b": alive\n\n"
                await _send(send, _body(data), self._context.settings.send_limit)


async def _send(send: Send, message: Message, seconds: float) -> None:
    async with asyncio.timeout(
        seconds
    ):  # otherwise a client that reads nothing would keep the stream open for ever
        await send(message)


def _body(data: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}


def _sse(event: EncodedEvent) -> bytes:
    number = f"id: {event.id}\n" if event.id else ""
    return f"{number}event: {event.name}\n".encode() + b"data: " + event.data + b"\n\n"


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _serve_socket(context: ApiContext, websocket: WebSocket, task_id: str, after: int) -> None:
    """Send the events of a task until it ends, the client disconnects, or the client reads too slowly."""
    completed = await first_completed(
        f"tidegate socket {task_id}",
        _closing_reason(_send_messages(context, websocket, task_id, after)),
        _read_until_disconnect(websocket),
        _shutdown_reason(context),
    )
    if isinstance(completed.exception(), TimeoutError):
        await websocket.close(_TRY_AGAIN_LATER, "slow")
    elif completed.exception() is None and (reason := completed.result()) is not None:
        if reason:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LAST_EVENT_SECONDS, context.settings.send_limit)):
                    await websocket.send_text(_message(closing_event(reason)))
        await websocket.close(_CODES[reason], reason or None)


async def _send_messages(context: ApiContext, websocket: WebSocket, task_id: str, after: int) -> None:
    async with contextlib.aclosing(_event_batches(context, websocket, task_id, after)) as batches:
        async for batch in batches:
            for text in map(_message, batch) if batch else (_KEEP_ALIVE,):
                async with asyncio.timeout(context.settings.send_limit):
                    await websocket.send_text(text)


def _message(event: EncodedEvent) -> str:
    number = f'"id":"{event.id}",' if event.id else ""
    return f'{{"event":"{event.name}",{number}"data":{event.data.decode()}}}'


async def _read_until_disconnect(websocket: WebSocket) -> None:
    """Read and ignore messages until the client disconnects."""
    with contextlib.suppress(RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
