"""The requests and responses that pass between the server and the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, whole."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes = b""


class NoResponse(Response):
    """The request gets no response: its connection is reset, or stays open until the client disconnects."""

    def __init__(self, ending: Literal["hang", "reset"]) -> None:
        super().__init__()
        self.ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """End the connection if it is to be reset, and return when it has ended."""
        if self.ending == "reset":
            scope["state"]["connection"].reset()
        while (await receive())["type"] != "http.disconnect":
            pass


def json_response(status: int, content: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with `content` as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def event_stream(chunks: Sequence[bytes], pause_seconds: float) -> Response:
    """Return a stream of server-sent events with a pause between two chunks."""
    # A header instead of a media type, to which Starlette adds a charset.
    return StreamingResponse(_paced(chunks, pause_seconds), headers={"content-type": "text/event-stream"})


async def _paced(chunks: Sequence[bytes], pause_seconds: float) -> AsyncIterator[bytes]:
    for index, chunk in enumerate(chunks):
        if index and pause_seconds:
            await asyncio.sleep(pause_seconds)
        yield chunk
