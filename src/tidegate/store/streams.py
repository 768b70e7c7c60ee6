"""The values of streams: what running tasks emit, and how far their readers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.domain.states import State

CHUNK_BYTES = 65_536
"""How large one chunk may be once encoded."""


CHUNKS_BYTES = 1_048_576
"""How much one read of chunks takes at most, unless it says so; one chunk more."""


class NewChunk(NamedTuple):
    """One piece that a run emitted."""

    fence: Fence
    position: int
    """Its number within the run, from 1 without gaps: by it a resend is recognised."""
    data: bytes
    """Encoded JSON, `CHUNK_BYTES` at most."""


class StoredChunk(NamedTuple):
    """One piece of a task's stream."""

    sequence: int
    """Its number within the task, from 1, rising over all runs."""
    run: int
    """The run that emitted it."""
    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamHead:
    """What a follower must know of a task: where it is, and how far its stream goes."""

    state: State
    run: int
    tenant: str
    last_sequence: int
    """Of its newest chunk; 0 without any."""
    progress_done: float | None
    progress_total: float | None
    progress_note: str
