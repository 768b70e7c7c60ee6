"""Events of a task as they go over the wire, the same for SSE and WebSocket."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.codec.plain import plain, to_json
from tidegate.store.streams import StoredChunk
from tidegate.watch import Advanced, Ended, Event, Moved, Reset
from tidegate.web.room import Room

PIECE_BYTES = 32_768
"""Of events that are sent at once: so much more than the connection takes in is held for a slow follower."""

_SHARED, _SHARED_BYTES = 256, 2_048
"""Chunks kept as they are sent, and how large each: many followers of a task are sent the same ones."""


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


class ClosedOut(msgspec.Struct):
    """The stream ends before the task does."""

    reason: str
    """`token`: it is no longer good; `stopping`: the server stops, come again; `store`: it cannot be reached
    just now, come again; `deleted`: the task is gone."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event, ready to be sent."""

    name: str
    """`state`, `chunk`, `progress`, `reset`, `end` or `closed`."""
    data: bytes
    """JSON on one line."""
    id: str = ""
    """A chunk's number, at which to resume; other events have none and do not move it."""


async def pieces(room: Room, events: Sequence[Event]) -> AsyncGenerator[list[Told], None]:
    """Yield events as they are sent, as many at once as are not much larger than `PIECE_BYTES`."""
    piece: list[Told] = []
    size = 0
    for event in events:
        piece.append(await _told(room, event))
        size += len(piece[-1].data)
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def closed(reason: str) -> Told:
    """Return the event that ends a stream before its task ends."""
    return Told("closed", to_json(ClosedOut(reason)))


async def _told(room: Room, event: Event) -> Told:
    if isinstance(event, StoredChunk):
        if len(event.data) <= _SHARED_BYTES:
            return _shared_chunk(event)
        return _chunk(event, await room.plain(event.data))
    if isinstance(event, Moved):
        return Told("state", to_json(StateOut(event.state.value, event.run)))
    if isinstance(event, Advanced):
        return Told("progress", to_json(ProgressEvent(event.done, event.total, event.note)))
    if isinstance(event, Reset):
        return Told("reset", to_json(ResetOut()))
    assert isinstance(event, Ended)
    return Told("end", to_json(StateOut(event.state.value, event.run)))


@functools.lru_cache(maxsize=_SHARED)
def _shared_chunk(chunk: StoredChunk) -> Told:
    return _chunk(chunk, plain(chunk.data))


def _chunk(chunk: StoredChunk, data: msgspec.Raw) -> Told:
    number = str(chunk.sequence)
    return Told("chunk", to_json(ChunkOut(number, chunk.run, chunk.at, data)), number)
