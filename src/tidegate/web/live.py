"""Events of a task as they go over the wire, the same for SSE and WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.store.streams import StoredChunk
from tidegate.watch import Advanced, Ended, Event, Moved, Reset
from tidegate.web.strict import encode, plain


class ServerSentEvent(msgspec.Struct):
    """One event of a stream: its name, its data as JSON text, and a chunk's number."""

    event: str
    data: str
    id: str = ""


class ChunkOut(msgspec.Struct):
    """One piece of the stream. Another `run` than before: the task began anew, and so does what it says."""

    sequence: str
    run: int
    at: float
    data: msgspec.Raw


class StateOut(msgspec.Struct):
    """Where the task is now; with `end`, for good."""

    state: str
    run: int


class ProgressEvent(msgspec.Struct):
    """How far the task says it is."""

    done: float
    total: float | None
    note: str


class ResetOut(msgspec.Struct):
    """The chunk to go on after does not exist: forget what was shown, the whole stream follows."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event, ready to be sent."""

    name: str
    """`state`, `chunk`, `progress`, `reset` or `end`."""
    data: bytes
    """JSON on one line."""
    id: str = ""
    """A chunk's number, at which to resume; other events have none and do not move it."""


def told(event: Event) -> Told:
    """Return an event as it is sent."""
    if isinstance(event, StoredChunk):
        number = str(event.sequence)
        shown: Any = ChunkOut(number, event.run, event.at, plain(event.data))
        return Told("chunk", encode(shown), number)
    if isinstance(event, Moved):
        return Told("state", encode(StateOut(event.state.value, event.run)))
    if isinstance(event, Advanced):
        return Told("progress", encode(ProgressEvent(event.done, event.total, event.note)))
    if isinstance(event, Reset):
        return Told("reset", encode(ResetOut()))
    assert isinstance(event, Ended)
    return Told("end", encode(StateOut(event.state.value, event.run)))


async def with_heartbeats(
    events: AsyncGenerator[Event, None], every: float
) -> AsyncGenerator[Told | None, None]:
    """Yield events as they are sent, and None wherever nothing happened for `every` seconds."""
    coming: asyncio.Task[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait((coming,), timeout=every)
            if not done:
                yield None
                continue
            finished, coming = coming, None
            try:
                event = finished.result()
            except StopAsyncIteration:
                return
            yield told(event)
    finally:
        if coming is not None:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                await coming
        await events.aclose()
