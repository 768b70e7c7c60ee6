"""Worker rows: their leases, and the runs of retired workers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.domain.outcome import Fence
from tidegate.store.common.columns import StoredOrphan, StoredWorker, build_orphan, build_worker_row
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.orphans import REAPER_WORKER_ID, Orphan, ReaperPass
from tidegate.store.worker_rows import NewWorker, WorkerRow


async def add_worker(db: Session, worker: NewWorker) -> None:
    """Register a pool process. Its lease starts now. A repeat changes nothing."""
    queues = msgspec.json.encode([storable(queue) for queue in worker.queues]).decode()
    names = (worker.id, worker.name, worker.pool, worker.host)
    await db.run(
        db.sql("add_worker")["add"],
        db.at,
        *(storable(name) for name in names),
        worker.pid,
        queues,
        worker.slots,
        storable(worker.version),
        worker.lease_seconds,
        storable(worker.application),
        worker.schedule_set,
        worker.most_slots,
    )


async def extend_leases(db: Session, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
    """Extend these leases to `lease_seconds` from now; return the ids that are retired or unknown."""
    rows = [(worker_id,) for worker_id in sorted(set(map(storable, worker_ids)))]
    alive = {
        worker_id
        for (worker_id,) in await db.run_each(db.sql("extend_leases")["beat"], rows, db.at, lease_seconds)
    }
    return set(worker_ids) - alive


async def list_workers(db: Session) -> list[WorkerRow]:
    """Return all workers that are not retired, and retired ones that still have runs."""
    rows = await db.rows(db.sql("list_workers")["list"])
    return [build_worker_row(row) for row in map(StoredWorker._make, rows)]


async def retire_worker(
    db: Session,
    worker_id: str,
    *,
    why: str,
    is_loss: bool,
    only_if_expired: bool,
    culprit: Fence | None = None,
) -> bool:
    """Retire a worker for good; return whether it is retired now. An unknown worker counts as retired."""
    sql, worker_id = db.sql("retire_worker"), storable(worker_id)
    task_id, run = (None, None) if culprit is None else (db.id(culprit.task_id), culprit.run)
    await db.row(sql["lock"], worker_id)
    retired = await db.run(
        sql["retire"], db.at, worker_id, storable(why), is_loss, only_if_expired, task_id, run
    )
    if retired and is_loss:
        await db.run(sql["count_expired"], worker_id)
    return await db.value(sql["is_alive"], worker_id) is None


async def list_orphans(db: Session, limit: int = 500) -> list[Orphan]:
    """Return runs whose worker is retired, oldest first."""
    rows = await db.rows(db.sql("list_orphans")["orphans"], limit)
    return [build_orphan(row, db.text) for row in map(StoredOrphan._make, rows)]


async def record_reaper_pass(db: Session, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
    """Record a pass of a reaper, and restore missing worker rows that runs refer to."""
    sql = db.sql("record_reaper_pass")
    noted = await db.row(sql["note"], db.at, REAPER_WORKER_ID, longest_gap_seconds)
    assert noted is not None
    at, since_at = noted
    restored = await db.column(sql["restore"], db.at, lease_seconds)
    return ReaperPass(at, since_at, tuple(restored))


async def delete_retired_workers(db: Session, older_than_seconds: float) -> int:
    """Delete workers without runs, retired longer ago than this, and their reports; return how many."""
    deleted = await db.run(db.sql("delete_retired_workers")["forget"], db.at, older_than_seconds)
    for statement in ("forget_reports", "forget_processes"):
        await db.run(db.sql("controls")[statement], db.at, older_than_seconds)
    return deleted
