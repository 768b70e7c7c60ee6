"""Small things about runs under way: their progress, and who was asked to stop."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.outcome import Fence
from tidegate.store import ids
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.wrap import refused_content
from tidegate.store.rows import CancelRequest, ProgressNote
from tidegate.store.text import finite, storable

_KEEP = load("progress")["keep"]
_ASKED = load("cancel_requests")["asked"]


async def progress(db: Session, notes: Sequence[ProgressNote]) -> list[Fence]:
    """Keep the last progress of these runs; return the fences that are no longer current."""
    latest = {(ids.known(note.fence.task_id), note.fence.run): note for note in notes}
    rows = [
        (task_id, run, finite(note.done, 0.0), _total(note), storable(note.note[:MESSAGE_LIMIT]))
        for (task_id, run), note in sorted(latest.items(), key=lambda entry: str(entry[0]))
        if task_id is not None
    ]
    if not rows:
        return [note.fence for note in notes]
    columns = [list(column) for column in zip(*rows, strict=True)]
    with refused_content():
        kept = {Fence(str(task_id), run) for task_id, run in await db.rows(_KEEP, db.at, *columns)}
    return [note.fence for note in notes if note.fence not in kept]


async def cancel_requests(db: Session, worker_id: str) -> list[CancelRequest]:
    """Return this worker's runs whose cancel was requested."""
    return [
        CancelRequest(Fence(str(task_id), run), force)
        for task_id, run, force in await db.rows(_ASKED, worker_id)
    ]


def _total(note: ProgressNote) -> float | None:
    return None if note.total is None else finite(note.total, 0.0)
