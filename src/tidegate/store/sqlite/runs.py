"""Small things about runs under way: their progress, and who was asked to stop."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.outcome import Fence
from tidegate.store import ids
from tidegate.store.rows import CancelRequest, ProgressNote
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import finite, storable

_KEEP = load("progress")["keep"]
_ASKED = load("cancel_requests")["asked"]


def progress(db: apsw.Connection, now: float, notes: Sequence[ProgressNote]) -> list[Fence]:
    """Keep the last progress of these runs; return the fences that are no longer current."""
    return [note.fence for note in notes if not _keep(db, now, note)]


def cancel_requests(db: apsw.Connection, worker_id: str) -> list[CancelRequest]:
    """Return this worker's runs whose cancel was requested."""
    return [
        CancelRequest(Fence(ids.text(task_id), run), bool(force))
        for task_id, run, force in query.rows(db, _ASKED, (worker_id,))
    ]


def _keep(db: apsw.Connection, now: float, note: ProgressNote) -> bool:
    total = None if note.total is None else finite(note.total, 0.0)
    said = storable(note.note[:MESSAGE_LIMIT])
    row = (ids.known_blob(note.fence.task_id), note.fence.run, now, finite(note.done, 0.0), total, said)
    return query.value(db, _KEEP, row) is not None
