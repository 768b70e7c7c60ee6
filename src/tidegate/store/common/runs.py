"""Current runs: their progress and their cancel requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.outcome import Fence
from tidegate.store.common.session import Session
from tidegate.store.common.text import finite, storable
from tidegate.store.rows import CancelRequest, ProgressUpdate


async def save_progress(db: Session, notes: Sequence[ProgressUpdate]) -> list[Fence]:
    """Store the latest progress of these runs; return the fences that are no longer current."""
    latest = {note.fence: note for note in notes}
    rows = [row for fence in sorted(latest) if (row := _progress_row(db, latest[fence])) is not None]
    kept = {
        Fence(db.text(task_id), run)
        for task_id, run in await db.run_each(db.sql("save_progress")["save"], rows, db.at)
    }
    return [note.fence for note in notes if note.fence not in kept]


async def list_cancel_requests(db: Session, worker_id: str) -> list[CancelRequest]:
    """Return this worker's runs whose cancel was requested."""
    sql = db.sql("list_cancel_requests")["requested"]
    return [
        CancelRequest(Fence(db.text(task_id), run), bool(force))
        for task_id, run, force in await db.rows(sql, storable(worker_id))
    ]


def _progress_row(db: Session, note: ProgressUpdate) -> tuple[Any, ...] | None:
    task_id = db.id(note.fence.task_id)
    if task_id is None:
        return None
    total = None if note.total is None else finite(note.total, 0.0)
    return task_id, note.fence.run, finite(note.done, 0.0), total, storable(note.note[:MESSAGE_LIMIT])


async def find_lost_claims(db: Session, worker_id: str, known: frozenset[Fence]) -> list[Fence]:
    """Return the runs that the store has for this worker and that are not among `known`."""
    sql, worker_id = db.sql("find_lost_claims"), storable(worker_id)
    await db.row(sql["wait"], worker_id)
    rows = await db.rows(sql["held"], worker_id)
    held = [Fence(db.text(task_id), run) for task_id, run in rows]
    return [fence for fence in held if fence not in known]
