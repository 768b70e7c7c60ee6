"""`SqliteStore`: the store contract on one file. Each method names its work, done in the modules beside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.domain.outcome import Answer, Fence, Outcome
from tidegate.domain.permit import Hold
from tidegate.domain.spec import Priority
from tidegate.domain.upstream import Declared, Gate, GateRow, Limits, Signal, Slot
from tidegate.domain.usage import Heard
from tidegate.policy.backlog import Unserved
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.migrate import tell_ahead
from tidegate.store.refusals import no_joining
from tidegate.store.rows import (
    ActAnswer,
    BudgetRow,
    CancelAnswer,
    CancelRequest,
    Claim,
    ClaimAsk,
    DeadLetter,
    Enqueued,
    HistoryEntry,
    NewTask,
    NewWorker,
    Orphan,
    ProgressNote,
    QueueStats,
    ReaperPass,
    StoredResult,
    TaskFilter,
    TaskRow,
    UpstreamRow,
    WorkerRow,
)
from tidegate.store.sqlite import (
    access,
    acts,
    budgets,
    claim,
    dead,
    enqueue,
    finish,
    gates,
    listing,
    permits,
    promote,
    reads,
    runs,
    schema,
    stages,
    stats,
    steward,
    streams,
    upkeep,
    workers,
)
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.job import Look, Mode, T, Work
from tidegate.store.sqlite.writer import BUSY_SECONDS, Runner, WriterThread
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk, StreamHead


class SqliteStore:
    """The store on a SQLite file: opened at the first use, for any number of event loops and threads.

    Args:
        path: The database file. Made, with its directory, if it is not there.
        runner: Where the work is done; threads of its own by default.
        clock: The store's clock in seconds since the epoch; this host's by default.
        busy_seconds: How long a call waits for the write lock before StoreBusyError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        runner: Runner | None = None,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._runner = runner or WriterThread(self.path, busy_seconds=busy_seconds)
        self._now = clock or HighWaterClock()

    async def _read(self, work: Work[T]) -> T:
        return await self._runner.run(work, Mode.READ)

    async def _write(self, work: Work[T], *, look: Look[T] | None = None) -> T:
        return await self._runner.run(work, Mode.WRITE, look=look)

    # --- lifecycle ---

    async def open(self) -> None:
        """Make the schema of a new file, or check that of an old one."""
        tell_ahead(await self.ahead(), str(self.path))

    async def ahead(self) -> int:
        """Check the schema; return how many migrations it has that this version does not know."""
        return await self._read(schema.check)

    async def close(self) -> None:
        """Finish what is under way and let go of everything; a later call opens the file again."""
        await self._runner.close()

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations applied."""
        return await self._runner.run(lambda db: upkeep.upgrade(db, self.path), Mode.BARE)

    async def now(self) -> float:
        """Return the store's clock."""
        return self._now()

    async def changed(self, timeout_seconds: float) -> None:
        """Return when another commit may have been made since this asyncio task's last return."""
        await self._runner.changed(timeout_seconds)

    async def check(self) -> list[str]:
        """Examine file and tables; return what is wrong in words."""
        return await self._read(upkeep.check)

    # --- tasks ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Store these tasks, all or none, and answer in their order."""
        if not tasks:
            return []
        return await self._write(lambda db: enqueue.enqueue(db, self._now(), tasks))

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Refuse: the file is this store's own, and no other connection can write in its transactions."""
        raise no_joining()

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Refuse, as `enqueue_within`."""
        raise no_joining()

    async def stage(self, stage_id: str, tasks: Sequence[NewTask]) -> None:
        """Store a part of a larger enqueue where nothing can see it yet."""
        await self._write(lambda db: stages.stage(db, self._now(), stage_id, tasks))

    async def commit_stage(self, stage_id: str) -> dict[str, str]:
        """Make a stage's tasks visible at once; return {staged id: holder's id} where a key was taken."""
        done = await self._write(lambda db: stages.commit_stage(db, self._now(), stage_id))
        if isinstance(done, stages.Refused):
            raise done.error()
        return done

    async def drop_stage(self, stage_id: str) -> None:
        """Forget an uncommitted stage and its tasks."""
        await self._write(lambda db: stages.drop_stage(db, stage_id))

    async def read(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        """Return the rows of those ids that exist, from one snapshot."""
        return await self._read(lambda db: reads.read(db, task_ids))

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        """Return the first task ids from `least` to `largest`, in order."""
        return await self._read(lambda db: reads.find_ids(db, least, largest, tenant, limit))

    async def result(self, task_id: str) -> StoredResult | None:
        """Return the result of a final task; None if it is not final."""
        return await self._read(lambda db: reads.result(db, task_id))

    async def payload(self, task_id: str) -> tuple[bytes, str]:
        """Return a task's encoded arguments and their codec tag."""
        return await self._read(lambda db: reads.payload(db, task_id))

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Return every run and act of a task, oldest first."""
        return await self._read(lambda db: reads.history(db, task_id))

    async def list_tasks(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        """Return tasks newest first, continuing after the id `after`."""
        return await self._read(lambda db: listing.list_tasks(db, which, after, limit))

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelAnswer]:
        """Cancel tasks wherever they are; answer per id."""
        return await self._write(lambda db: acts.cancel(db, self._now(), task_ids, why, force=force))

    async def reprioritise(self, task_ids: Sequence[str], priority: Priority) -> dict[str, ActAnswer]:
        """Give waiting or ready tasks another priority; their rank stays."""
        return await self._write(lambda db: acts.reprioritise(db, self._now(), task_ids, priority))

    async def hurry(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        """Make scheduled and retrying tasks ready now."""
        return await self._write(lambda db: acts.hurry(db, self._now(), task_ids))

    # --- work ---

    async def claim(self, ask: ClaimAsk) -> Claim:
        """Take up to `ask.slots` ready tasks; nothing is locked while there is none."""
        return await self._write(
            lambda db: claim.claim(db, self._now(), ask), look=lambda db: claim.look(db, self._now(), ask)
        )

    async def lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        """Return the runs this worker holds by the store's word that are not among `known`."""
        fences = frozenset(known)
        # As a write, so that it comes after a claim that is under way on the writing thread.
        return await self._write(lambda db: claim.lost_claims(db, worker_id, fences))

    async def finish(self, outcomes: Sequence[Outcome]) -> list[Answer]:
        """Write how these runs ended, in one transaction; answer per outcome, in order."""
        if not outcomes:
            return []
        return await self._write(lambda db: finish.finish(db, self._now(), outcomes))

    async def progress(self, notes: Sequence[ProgressNote]) -> list[Fence]:
        """Keep the last progress of these runs; return the fences that are no longer current."""
        if not notes:
            return []
        return await self._write(lambda db: runs.progress(db, self._now(), notes))

    async def cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        """Return this worker's runs whose cancel was requested."""
        return await self._read(lambda db: runs.cancel_requests(db, worker_id))

    # --- streams ---

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        """Keep what these runs emitted; return the fences that are no longer current."""
        if not new:
            return []
        return await self._write(lambda db: streams.append_chunks(db, self._now(), new))

    async def stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        """Return where those tasks that exist are and how far their streams go."""
        return await self._read(lambda db: streams.stream_heads(db, task_ids))

    async def chunks(
        self, after: Mapping[str, int], *, limit: int = 100, most_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        """Return up to `limit` chunks a task and `most_bytes` in all that follow the given numbers."""
        return await self._read(lambda db: streams.chunks(db, after, limit, most_bytes))

    # --- workers ---

    async def add_worker(self, worker: NewWorker) -> None:
        """Register a pool process; its lease runs from now."""
        await self._write(lambda db: workers.add_worker(db, self._now(), worker))

    async def beat(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """Move these workers' leases; return the ids that are retired or unknown."""
        if not worker_ids:
            return set()
        return await self._write(lambda db: workers.beat(db, self._now(), worker_ids, lease_seconds))

    async def workers(self) -> list[WorkerRow]:
        """Return all workers that are not retired, and retired ones that still hold runs."""
        return await self._read(workers.workers)

    async def retire_worker(
        self,
        worker_id: str,
        *,
        why: str,
        loss: bool,
        only_if_expired: bool,
        culprit: Fence | None = None,
    ) -> bool:
        """Retire a worker for good; return whether it is retired now."""
        retire = functools.partial(
            workers.retire_worker, why=why, loss=loss, only_if_expired=only_if_expired, culprit=culprit
        )
        return await self._write(lambda db: retire(db, self._now(), worker_id))

    async def orphans(self, limit: int = 500) -> list[Orphan]:
        """Return runs whose worker is retired, oldest first."""
        return await self._read(lambda db: workers.orphans(db, limit))

    async def begin_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        """Write down that a reaper passes; give runs without a worker's row one again."""
        return await self._write(
            lambda db: workers.begin_pass(db, self._now(), longest_gap_seconds, lease_seconds)
        )

    async def forget_workers(self, older_than_seconds: float) -> int:
        """Delete retired workers without runs that were retired so long ago; return how many."""
        return await self._write(lambda db: workers.forget_workers(db, self._now(), older_than_seconds))

    # --- stewardship ---

    async def promote(self, limit: int = 500) -> int:
        """Move up to `limit` due tasks to ready, or put them off; return how many were due."""
        return await self._write(
            lambda db: promote.promote(db, self._now(), limit),
            look=lambda db: promote.look(db, self._now()),
        )

    async def unstage(self, limit: int = 5_000) -> int:
        """Move up to `limit` tasks of committed stages to where they belong; return how many."""
        return await self._write(lambda db: stages.unstage(db, self._now(), limit), look=stages.look_unstage)

    async def sweep(self, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000) -> int:
        """Delete what has served its time; return how many rows went, `limit` a kind at most."""
        ages = {"finished_seconds": finished_seconds, "dead_seconds": dead_seconds}
        return await self._write(
            lambda db: steward.sweep(db, self._now(), **ages, limit=limit),
            look=lambda db: steward.look_sweep(db, self._now(), **ages),
        )

    async def checkpoint(self) -> None:
        """Fold the write-ahead log back; empty a large one if nobody writes."""
        await self._runner.run(lambda db: upkeep.checkpoint(db, self.path, self._busy_seconds), Mode.BARE)

    # --- dead letters ---

    async def dead_letters(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        """Return dead letters, the latest failure first, continuing after the id `after`."""
        return await self._read(lambda db: dead.dead_letters(db, which, after, limit))

    async def count_dead(self, which: TaskFilter) -> int:
        """Return how many dead letters match."""
        return await self._read(lambda db: dead.count_dead(db, which))

    async def redrive(
        self, task_ids: Sequence[str], *, args: Mapping[str, tuple[bytes, str]] | None = None
    ) -> dict[str, ActAnswer]:
        """Send dead letters back to the main queue; answer per id."""
        return await self._write(lambda db: dead.redrive(db, self._now(), task_ids, args or {}))

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        """Delete dead letters for good, with payload and history."""
        return await self._write(lambda db: dead.purge(db, task_ids))

    # --- figures ---

    async def queue_stats(self, unserved: Unserved | None = None) -> list[QueueStats]:
        """Return each queue that holds a task or finished one in the last ten minutes, by name."""
        return await self._read(lambda db: stats.queue_stats(db, self._now(), unserved))

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        """Keep what an application declares (functions, pools)."""
        await self._write(lambda db: stats.save_manifest(db, self._now(), app, manifest))

    async def manifests(self) -> dict[str, dict[str, Any]]:
        """Return the kept manifests by application."""
        return await self._read(stats.manifests)

    # --- access ---

    async def add_token(self, token: NewToken) -> None:
        """Keep a token's digest with what it lets people do."""
        await self._write(lambda db: access.add_token(db, self._now(), token))

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """Return the token with this digest, if it is good now."""
        return await self._read(lambda db: access.find_token(db, self._now(), digest))

    async def tokens(self) -> list[TokenRow]:
        """Return all tokens that were ever made, the oldest first."""
        return await self._read(access.tokens)

    async def revoke_token(self, token_id: str) -> bool:
        """Make a token worthless; return whether there is one of this id."""
        return await self._write(lambda db: access.revoke_token(db, self._now(), token_id))

    async def record(self, entries: Sequence[NewAuditEntry]) -> None:
        """Put changes on record."""
        if entries:
            await self._write(lambda db: access.record(db, self._now(), entries))

    async def audit(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return the record, the newest first, continuing after the id `after`."""
        return await self._read(lambda db: access.audit(db, after, limit))

    # --- upstreams ---

    async def declare(self, declared: Sequence[Declared]) -> list[GateRow]:
        """Keep what an application declares of limits; return the rows that count."""
        return await self._write(lambda db: gates.declare(db, self._now(), declared))

    async def gates(self) -> list[GateRow]:
        """Return every gate as it is stored."""
        return await self._read(gates.rows)

    async def upstreams(self) -> list[UpstreamRow]:
        """Return every upstream with what stands before it, by name."""
        return await self._read(lambda db: gates.upstreams(db, self._now()))

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        """Give an upstream other limits, from now on and for all; tell whether it is known."""
        return await self._write(lambda db: gates.set_limits(db, self._now(), upstream, limits))

    async def park(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        """Park an upstream by hand; tell whether it is known."""
        return await self._write(lambda db: gates.park(db, self._now(), upstream, seconds, why))

    async def open_gate(self, upstream: str) -> bool:
        """Open an upstream's gate by hand; tell whether it is known."""
        return await self._write(lambda db: gates.open_gate(db, self._now(), upstream))

    async def probe(self, upstream: str) -> bool:
        """Let the next task of an upstream try whether it works; tell whether it is known."""
        return await self._write(lambda db: gates.probe(db, self._now(), upstream))

    async def take_slot(
        self,
        upstream: str,
        *,
        patience_seconds: float,
        hold: Hold | None = None,
        on_last_attempt: bool = False,
    ) -> Slot:
        """Charge one call that no claim charged."""
        return await self._write(
            lambda db: permits.take_slot(db, self._now(), upstream, patience_seconds, hold, on_last_attempt)
        )

    async def give_back_permits(self, permit_ids: Sequence[str]) -> None:
        """Count these calls as in flight no longer."""
        await self._write(lambda db: permits.give_back(db, permit_ids))

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        """Let these permits expire no earlier than so long from now."""
        await self._write(lambda db: permits.extend(db, self._now(), permit_ids, seconds))

    async def tell(self, upstream: str, signal: Signal) -> Gate:
        """Let a failure move an upstream's gate; return the gate."""
        told = await self._write(lambda db: gates.told(db, self._now(), upstream, signal))
        return told.gate

    async def tell_of_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        """Let a call that tried a held upstream, and did not fail by it, move the gate."""
        await self._write(lambda db: gates.tried(db, self._now(), upstream, seconds, is_good=is_good))

    async def answered(self, upstream: str) -> None:
        """Let a call that went well clear what failures left in its upstream's gate."""
        await self._write(lambda db: gates.answered(db, self._now(), upstream))

    async def learn(self, upstream: str, heard: Sequence[Heard]) -> GateRow | None:
        """Keep what answers showed of an upstream's limits; return its gate."""
        return await self._write(lambda db: gates.learned(db, self._now(), upstream, heard))

    async def budgets(self) -> list[BudgetRow]:
        """Return the retry budgets, the system's first."""
        return await self._read(lambda db: budgets.budgets(db, self._now()))
