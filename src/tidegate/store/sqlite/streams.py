"""Streams of running tasks: fenced writes, and reads from any number on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import apsw

from tidegate.domain.outcome import Fence
from tidegate.store.common import ids
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.streams import NewChunk, StoredChunk

_APPEND = load("append_chunks")
_AFTER = load("read_chunks")["after"]


def append_chunks(db: apsw.Connection, now: float, new: Sequence[NewChunk]) -> list[Fence]:
    """Store what these runs emitted; return the fences that are no longer current."""
    in_order = sorted(new, key=lambda chunk: (chunk.fence, chunk.position))
    by_run = groupby(in_order, key=lambda chunk: chunk.fence)
    return [fence for fence, chunks in by_run if not _append(db, now, fence, list(chunks))]


def read_chunks(
    db: apsw.Connection, after: Mapping[str, int], limit: int, max_bytes: int
) -> dict[str, list[StoredChunk]]:
    """Return up to `limit` chunks per task, `max_bytes` in total, that follow the given numbers, in order."""
    found: dict[str, list[StoredChunk]] = {}
    size = 0
    for task_id, sequence in after.items():
        task = ids.blob_or_none(task_id)
        if task is None:
            continue
        for row in db.execute(_AFTER, (task, sequence, limit)):
            chunk = StoredChunk(*row)
            found.setdefault(task_id, []).append(chunk)
            size += len(chunk.data)
            if size >= max_bytes:
                return found
    return found


def _append(db: apsw.Connection, now: float, fence: Fence, new: Sequence[NewChunk]) -> bool:
    task = ids.blob_or_none(fence.task_id)
    base = query.value(db, _APPEND["begin"], (task, fence.run))
    if base is None:
        return False
    rows = [(task, base + chunk.position, fence.run, now, chunk.data) for chunk in new]
    db.executemany(_APPEND["insert"], rows)
    db.execute(_APPEND["extend"], (task, base + new[-1].position))
    return True
