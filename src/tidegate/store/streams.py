"""The values of streams: the chunks that running tasks emit, and the heads that readers follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.domain.states import State

CHUNK_BYTES = 65_536
"""Most bytes of one encoded chunk."""


CHUNKS_BYTES = 1_048_576
"""Default size in bytes at which a read of chunks stops. The last chunk may exceed it."""


class NewChunk(NamedTuple):
    """One chunk that a run emitted."""

    fence: Fence
    position: int
    """The number of the chunk within the run, from 1 without gaps. The store recognises a resend by it."""
    data: bytes
    """Encoded JSON, `CHUNK_BYTES` at most."""


class StoredChunk(NamedTuple):
    """One chunk of a task's stream."""

    sequence: int
    """The number of the chunk within the task, from 1. The number rises across all runs."""
    run: int
    """The run that emitted the chunk."""
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamHead:
    """What a reader of a stream needs: the task's state, and how far the stream goes."""

    state: State
    run: int
    tenant: str
    last_sequence: int
    """Number of the newest chunk; 0 if there is none."""
    progress_done: float | None
    progress_total: float | None
    progress_note: str
