"""Worker rows: leases, and the runs that outlive them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from tidegate.domain.outcome import Fence
from tidegate.store import ids
from tidegate.store.columns import orphan, worker_row
from tidegate.store.rows import PASSES, NewWorker, Orphan, ReaperPass, WorkerRow
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_ADD = load("add_worker")["add"]
_BEAT = load("beat")["beat"]
_LIST = load("workers")["list"]
_RETIRE = load("retire_worker")
_ORPHANS = load("orphans")["orphans"]
_PASS = load("begin_pass")
_FORGET = load("forget_workers")["forget"]


def add_worker(db: apsw.Connection, now: float, worker: NewWorker) -> None:
    """Register a pool process; its lease runs from now. A repeat changes nothing."""
    queues = msgspec.json.encode([storable(queue) for queue in worker.queues]).decode()
    names = (worker.id, worker.name, worker.pool, worker.host)
    db.execute(
        _ADD,
        (
            *(storable(name) for name in names),
            worker.pid,
            queues,
            worker.slots,
            storable(worker.version),
            storable(worker.application),
            now,
            now,
            now + worker.lease_seconds,
        ),
    )


def beat(db: apsw.Connection, now: float, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
    """Move these leases to `lease_seconds` from now; return the ids that are retired or unknown."""
    return {
        worker_id
        for worker_id in sorted(set(worker_ids))
        if query.value(db, _BEAT, (worker_id, now, now + lease_seconds)) is None
    }


def workers(db: apsw.Connection) -> list[WorkerRow]:
    """Return all workers that are not retired, and retired ones that still hold runs."""
    return [worker_row(row) for row in query.rows(db, _LIST)]


def retire_worker(
    db: apsw.Connection,
    now: float,
    worker_id: str,
    *,
    why: str,
    loss: bool,
    only_if_expired: bool,
    culprit: Fence | None,
) -> bool:
    """Retire a worker for good; return whether it is retired now. An unknown one is."""
    task_id, run = (None, None) if culprit is None else (ids.blob(culprit.task_id), culprit.run)
    db.execute(_RETIRE["retire"], (worker_id, now, storable(why), loss, only_if_expired, task_id, run))
    return query.value(db, _RETIRE["is_alive"], (worker_id,)) is None


def orphans(db: apsw.Connection, limit: int) -> list[Orphan]:
    """Return runs whose worker is retired, oldest first."""
    return [orphan(row, ids.text) for row in query.rows(db, _ORPHANS, (limit,))]


def begin_pass(
    db: apsw.Connection, now: float, longest_gap_seconds: float, lease_seconds: float
) -> ReaperPass:
    """Write down that a reaper passes; give runs without a worker's row one again."""
    since = query.value(db, _PASS["note"], (PASSES, now, longest_gap_seconds))
    restored = [worker_id for (worker_id,) in query.rows(db, _PASS["restore"], (now, now + lease_seconds))]
    return ReaperPass(now, since, tuple(restored))


def forget_workers(db: apsw.Connection, now: float, older_than_seconds: float) -> int:
    """Delete retired workers without runs that were retired so long ago; return how many."""
    before = db.total_changes()
    db.execute(_FORGET, (now - older_than_seconds,))
    return db.total_changes() - before
