"""Worker rows: leases, and the runs that outlive them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.domain.outcome import Fence
from tidegate.store import ids
from tidegate.store.columns import orphan, worker_row
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.rows import PASSES, NewWorker, Orphan, ReaperPass, WorkerRow
from tidegate.store.text import storable

_ADD = load("add_worker")["add"]
_BEAT = load("beat")["beat"]
_LIST = load("workers")["list"]
_RETIRE = load("retire_worker")
_ORPHANS = load("orphans")["orphans"]
_PASS = load("begin_pass")
_FORGET = load("forget_workers")["forget"]

_LEAST_BEAT_SECONDS = 1.0
"""However short the lease: a busy machine may need so long."""


async def add_worker(db: Session, worker: NewWorker) -> None:
    """Register a pool process; its lease runs from now. A repeat changes nothing."""
    queues = msgspec.json.encode([storable(queue) for queue in worker.queues]).decode()
    names = (worker.id, worker.name, worker.pool, worker.host)
    await db.run(
        _ADD,
        db.at,
        *(storable(name) for name in names),
        worker.pid,
        queues,
        worker.slots,
        storable(worker.version),
        worker.lease_seconds,
        storable(worker.application),
    )


async def beat(database: Database, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
    """Move these leases to `lease_seconds` from now; return the ids that are retired or unknown.

    A connection that has fallen silent is given up after a third of the lease, so that another beat comes in
    time.
    """
    seconds = max(_LEAST_BEAT_SECONDS, lease_seconds / 3) if lease_seconds else None
    ids = sorted(map(storable, worker_ids))
    alive = await database.once(
        lambda db: db.column(_BEAT, db.at, ids, lease_seconds), seconds=seconds, steady=True
    )
    return set(worker_ids) - set(alive)


async def workers(db: Session) -> list[WorkerRow]:
    """Return all workers that are not retired, and retired ones that still hold runs."""
    return [worker_row(row) for row in await db.rows(_LIST)]


async def retire_worker(
    db: Session, worker_id: str, *, why: str, loss: bool, only_if_expired: bool, culprit: Fence | None
) -> bool:
    """Retire a worker for good; return whether it is retired now. An unknown one is."""
    worker_id = storable(worker_id)
    task_id, run = (None, None) if culprit is None else (ids.known(culprit.task_id), culprit.run)
    await db.row(_RETIRE["lock"], worker_id)
    await db.run(_RETIRE["retire"], db.at, worker_id, storable(why), loss, only_if_expired, task_id, run)
    return await db.value(_RETIRE["is_alive"], worker_id) is None


async def orphans(db: Session, limit: int) -> list[Orphan]:
    """Return runs whose worker is retired, oldest first."""
    return [orphan(row, str) for row in await db.rows(_ORPHANS, limit)]


async def begin_pass(db: Session, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
    """Write down that a reaper passes; give runs without a worker's row one again."""
    noted = await db.row(_PASS["note"], db.at, PASSES, longest_gap_seconds)
    assert noted is not None
    restored = await db.column(_PASS["restore"], db.at, lease_seconds)
    return ReaperPass(noted[0], noted[1], tuple(restored))


async def forget_workers(db: Session, older_than_seconds: float) -> int:
    """Delete retired workers without runs that were retired so long ago; return how many."""
    return await db.run(_FORGET, db.at, older_than_seconds)
