"""Events of a task as they go over the wire, the same for SSE and WebSocket."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.codec.plain import plain, to_json
from tidegate.store.streams import StoredChunk
from tidegate.task_watcher import ProgressChanged, StateChanged, StreamEnded, StreamReset, TaskEvent
from tidegate.web.api_context import ApiContext

SEND_BYTES = 32_768
"""Of events that are sent at once: so much more than the connection takes in is held for a slow follower."""

_CACHED_CHUNKS, _CACHED_CHUNK_BYTES = 256, 2_048
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


class StateChangedOut(msgspec.Struct):
    """Where the task is now; with `end`, for good."""

    state: str
    run: int


class ProgressEvent(msgspec.Struct):
    """How far the task says it is."""

    done: float
    total: float | None
    note: str


class StreamResetOut(msgspec.Struct):
    """The chunk to go on after does not exist: forget what was shown, the whole stream follows."""


class StreamClosedOut(msgspec.Struct):
    """The stream ends before the task does."""

    reason: str
    """`token`: it is no longer good; `stopping`: the server stops, come again; `store`: it cannot be reached
    just now, come again; `deleted`: the task is gone."""


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One event, ready to be sent."""

    name: str
    """`state`, `chunk`, `progress`, `reset`, `end` or `closed`."""
    data: bytes
    """JSON on one line."""
    id: str = ""
    """A chunk's number, at which to resume; other events have none and do not move it."""


async def encode_events(
    context: ApiContext, events: Sequence[TaskEvent]
) -> AsyncGenerator[list[EncodedEvent], None]:
    """Yield events as they are sent, as many at once as are not much larger than `SEND_BYTES`."""
    batch: list[EncodedEvent] = []
    size = 0
    for event in events:
        batch.append(await _encode(context, event))
        size += len(batch[-1].data)
        if size >= SEND_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def closing_event(reason: str) -> EncodedEvent:
    """Return the event that ends a stream before its task ends."""
    return EncodedEvent("closed", to_json(StreamClosedOut(reason)))


async def _encode(context: ApiContext, event: TaskEvent) -> EncodedEvent:
    if isinstance(event, StoredChunk):
        if len(event.data) <= _CACHED_CHUNK_BYTES:
            return _cached_chunk(event)
        return _chunk(event, await context.plain(event.data))
    if isinstance(event, StateChanged):
        return EncodedEvent("state", to_json(StateChangedOut(event.state.value, event.run)))
    if isinstance(event, ProgressChanged):
        return EncodedEvent("progress", to_json(ProgressEvent(event.done, event.total, event.note)))
    if isinstance(event, StreamReset):
        return EncodedEvent("reset", to_json(StreamResetOut()))
    assert isinstance(event, StreamEnded)
    return EncodedEvent("end", to_json(StateChangedOut(event.state.value, event.run)))


@functools.lru_cache(maxsize=_CACHED_CHUNKS)
def _cached_chunk(chunk: StoredChunk) -> EncodedEvent:
    return _chunk(chunk, plain(chunk.data))


def _chunk(chunk: StoredChunk, data: msgspec.Raw) -> EncodedEvent:
    number = str(chunk.sequence)
    return EncodedEvent("chunk", to_json(ChunkOut(number, chunk.run, chunk.at, data)), number)
