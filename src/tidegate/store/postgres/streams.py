"""Streams of running tasks: fenced writes, and reads from any number on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.domain.outcome import Fence
from tidegate.store.common import ids
from tidegate.store.postgres.errors import refused_content
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk

_APPEND = load("append_chunks")["append"]
_AFTER = load("read_chunks")["after"]


async def append_chunks(db: PostgresSession, new: Sequence[NewChunk]) -> list[Fence]:
    """Store what these runs emitted; return the fences that are no longer current."""
    known = [chunk for chunk in new if ids.canonical_or_none(chunk.fence.task_id) is not None]
    with refused_content():
        rows = await db.rows(
            _APPEND,
            [chunk.fence.task_id for chunk in known],
            [chunk.fence.run for chunk in known],
            [chunk.position for chunk in known],
            [chunk.data for chunk in known],
            db.at,
        )
    current = {Fence(str(task_id), run) for task_id, run in rows}
    return sorted({chunk.fence for chunk in new} - current)


async def read_chunks(
    db: PostgresSession, after: Mapping[str, int], *, limit: int = 100, max_bytes: int = CHUNKS_BYTES
) -> dict[str, list[StoredChunk]]:
    """Return up to `limit` chunks per task, `max_bytes` in total, that follow the given numbers, in order."""
    given = {known: task_id for task_id in after if (known := ids.canonical_or_none(task_id)) is not None}
    starts = [after[task_id] for task_id in given.values()]
    found: dict[str, list[StoredChunk]] = {}
    for task, *chunk in await db.rows(_AFTER, list(given), starts, limit, max_bytes):
        found.setdefault(given[str(task)], []).append(StoredChunk(*chunk))
    return found
