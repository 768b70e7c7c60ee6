"""Encodes the events of a task for server-sent events and WebSockets."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.codec.plain import plain, to_json
from tidegate.operations.task_watcher import (
    ProgressChanged,
    StateChanged,
    StreamEnded,
    StreamReset,
    TaskEvent,
)
from tidegate.store.streams import StoredChunk
from tidegate.web.api_context import ApiContext

SEND_BYTES = 32_768
"""The bytes of events that are sent together. For a slow follower the server holds at most this many more."""

_CACHED_CHUNKS, _CACHED_CHUNK_BYTES = 256, 2_048
"""How many encoded chunks are cached, and up to which size: all followers of a task get the same chunks."""


class ServerSentEvent(msgspec.Struct):
    """One event of a stream: its name, its data as JSON text, and the number of a chunk."""

    event: str
    data: str
    id: str = ""


class ChunkOut(msgspec.Struct):
    """One chunk of the stream. If `run` is new, the task has restarted: drop the chunks of earlier runs."""

    sequence: str
    run: int
    at: float
    data: msgspec.Raw


class StateChangedOut(msgspec.Struct):
    """The task's state. In an `end` event the state is final."""

    state: str
    run: int


class ProgressEvent(msgspec.Struct):
    """The progress that the task reported."""

    done: float
    total: float | None
    note: str


class StreamResetOut(msgspec.Struct):
    """The chunk after which to resume does not exist.

    Drop the chunks received so far; the whole stream follows.
    """


class StreamClosedOut(msgspec.Struct):
    """The stream ends before the task ends."""

    reason: str
    """The reason. `token`: the token is not valid any more. `stopping`: the server stops; reconnect. `store`:
    the store cannot be reached now; reconnect. `deleted`: the task was deleted."""


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One encoded event."""

    name: str
    """The name: `state`, `chunk`, `progress`, `reset`, `end` or `closed`."""
    data: bytes
    """The data as JSON on one line."""
    id: str = ""
    """The number of a chunk, after which a client can resume. Other events have no id and do not change this
    number."""


async def encode_events(
    context: ApiContext, events: Sequence[TaskEvent]
) -> AsyncGenerator[list[EncodedEvent], None]:
    """Encode events and yield them in batches of about `SEND_BYTES`."""
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
    """Return the event that ends a stream before the task ends."""
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
