"""Events of a task as they go over the wire, the same for SSE and WebSocket."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import msgspec

from tidegate.codec.plain import plain
from tidegate.codec.plain import to_json as encode
from tidegate.store.streams import StoredChunk
from tidegate.watch import Advanced, Ended, Event, Moved, Reset

_SHARED = 128
"""Chunks kept as they are sent: many followers of a task are sent the same ones."""


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
        return _chunk_told(event)
    if isinstance(event, Moved):
        return Told("state", encode(StateOut(event.state.value, event.run)))
    if isinstance(event, Advanced):
        return Told("progress", encode(ProgressEvent(event.done, event.total, event.note)))
    if isinstance(event, Reset):
        return Told("reset", encode(ResetOut()))
    assert isinstance(event, Ended)
    return Told("end", encode(StateOut(event.state.value, event.run)))


@functools.lru_cache(maxsize=_SHARED)
def _chunk_told(chunk: StoredChunk) -> Told:
    number = str(chunk.sequence)
    return Told("chunk", encode(ChunkOut(number, chunk.run, chunk.at, plain(chunk.data))), number)
