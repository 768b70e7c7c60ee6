"""`PostgresStore`: the store contract on a server. Each method names its work, done in the modules beside."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidegate._bridge import begin
from tidegate.domain.outcome import Answer, Fence, Outcome
from tidegate.domain.permit import Hold
from tidegate.domain.spec import Priority
from tidegate.domain.upstream import Declared, Gate, GateRow, Limits, Signal, Slot
from tidegate.domain.usage import Heard
from tidegate.policy.backlog import Unserved
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.migrate import tell_ahead
from tidegate.store.postgres import (
    access,
    acts,
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
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.clock import HighWater
from tidegate.store.postgres.database import BUSY_SECONDS, Database
from tidegate.store.postgres.facts import ServerFacts, server_facts
from tidegate.store.postgres.joined import Joined, identity
from tidegate.store.postgres.lanes import KnownLanes
from tidegate.store.postgres.watch import Watch
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
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk, StreamHead

T = TypeVar("T")


class PostgresStore:
    """The store on a PostgreSQL server: connected at the first use, for any number of event loops.

    Args:
        url: `postgresql://…`; what else it may say is in `Address`.
        clock: The store's clock in seconds since the epoch, for tests; the server's by default.
        busy_seconds: How long a call may take in all before StoreBusyError or StoreUnavailableError.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.address = parse_address(url)
        self._database = Database(self.address, clock=clock, busy_seconds=busy_seconds)
        self._clock = HighWater()
        self._lanes = KnownLanes()
        self._watch = Watch(self._database)
        self._joined = Joined(
            self.address.schema, lambda: self._database.once(identity), self._tell_from_anywhere
        )

    async def _told(self, work: Awaitable[T]) -> T:
        """Do work that others may wait for, and tell them."""
        answer = await work
        self._watch.committed()
        return answer

    def _tell_from_anywhere(self) -> None:
        """Tell of a commit of a caller's own, which may have been made outside any event loop."""

        async def tell() -> None:
            self._watch.committed()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            begin(tell())
        else:
            self._watch.committed()

    async def _told_if_any(self, work: Awaitable[int]) -> int:
        """Do work that others may wait for, and tell them if it did anything."""
        rows = await work
        if rows:
            self._watch.committed()
        return rows

    # --- lifecycle ---

    async def open(self) -> None:
        """Connect and check the schema; it is never made here."""
        tell_ahead(await self.ahead(), self._database.place)

    async def ahead(self) -> int:
        """Check the schema; return how many migrations it has that this version does not know."""
        return await self._database.transact(schema.check, snapshot=True)

    async def close(self) -> None:
        """Let go of all connections; a later call makes new ones."""
        await self._watch.close()
        await self._database.close()

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations applied."""
        return await schema.upgrade(self._database)

    async def upgrade_script(self) -> str:
        """Return what `migrate` would run, for a person to run; empty if there is nothing to do."""
        return await self._database.transact(schema.script, snapshot=True)

    async def server_facts(self) -> ServerFacts:
        """Return what a doctor wants to know of the server."""
        return await self._database.read(server_facts)

    async def is_pooled(self) -> bool:
        """Whether a pooler in transaction mode is in between."""
        return await self._database.is_pooled()

    async def now(self) -> float:
        """Return the store's clock."""
        return await self._database.read(self._clock.now)

    async def changed(self, timeout_seconds: float) -> None:
        """Return when another commit may have been made since this asyncio task's last return."""
        await self._watch.changed(timeout_seconds)

    async def check(self) -> list[str]:
        """Examine the tables; return what is wrong in words."""
        return await self._database.transact(upkeep.check, snapshot=True)

    # --- tasks ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Store these tasks, all or none, and answer in their order."""
        return await self._told(enqueue.enqueue(self._database, tasks)) if tasks else []

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Store tasks in the transaction that is open on a caller's async connection."""
        return await self._joined.enqueue(conn, tasks) if tasks else []

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """As `enqueue_within`, on a connection that blocks."""
        return self._joined.enqueue_sync(conn, tasks) if tasks else []

    async def stage(self, stage_id: str, tasks: Sequence[NewTask]) -> None:
        """Store a part of a larger enqueue where nothing can see it yet."""
        await stages.stage(self._database, stage_id, tasks)

    async def commit_stage(self, stage_id: str) -> dict[str, str]:
        """Make a stage's tasks visible at once; return {staged id: holder's id} where a key was taken."""
        return await self._told(stages.commit_stage(self._database, stage_id))

    async def drop_stage(self, stage_id: str) -> None:
        """Forget an uncommitted stage and its tasks."""
        await stages.drop_stage(self._database, stage_id)

    async def read(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        """Return the rows of those ids that exist, from one snapshot."""
        return await self._database.read(lambda db: reads.read(db, task_ids))

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        """Return the first task ids from `least` to `largest`, in order."""
        return await self._database.read(lambda db: reads.find_ids(db, least, largest, tenant, limit))

    async def result(self, task_id: str) -> StoredResult | None:
        """Return the result of a final task; None if it is not final."""
        return await self._database.read(lambda db: reads.result(db, task_id), steady=True)

    async def payload(self, task_id: str) -> tuple[bytes, str]:
        """Return a task's encoded arguments and their codec tag."""
        return await self._database.read(lambda db: reads.payload(db, task_id), steady=True)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """Return every run and act of a task, oldest first."""
        return await self._database.transact(lambda db: reads.history(db, task_id), snapshot=True)

    async def list_tasks(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        """Return tasks newest first, continuing after the id `after`."""
        return await self._database.transact(
            lambda db: listing.list_tasks(db, which, after, limit), snapshot=True
        )

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelAnswer]:
        """Cancel tasks wherever they are; answer per id."""
        return await self._told(
            self._database.transact(lambda db: acts.cancel(db, task_ids, why, force=force))
        )

    async def reprioritise(self, task_ids: Sequence[str], priority: Priority) -> dict[str, ActAnswer]:
        """Give waiting or ready tasks another priority; their rank stays."""
        return await self._told(self._database.transact(lambda db: acts.reprioritise(db, task_ids, priority)))

    async def hurry(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        """Make scheduled and retrying tasks ready now."""
        return await self._told(self._database.transact(lambda db: acts.hurry(db, task_ids)))

    # --- work ---

    async def claim(self, ask: ClaimAsk) -> Claim:
        """Take up to `ask.slots` ready tasks; nothing is locked while there is none."""
        return await claim.claim(self._database, self._lanes, ask)

    async def lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        """Return the runs this worker holds by the store's word that are not among `known`."""
        fences = frozenset(known)
        return await self._database.transact(lambda db: claim.lost_claims(db, worker_id, fences))

    async def finish(self, outcomes: Sequence[Outcome]) -> list[Answer]:
        """Write how these runs ended, in one transaction; answer per outcome, in order.

        A batch that is refused for its content is written in parts, each a transaction of its own.
        """
        return await self._told(finish.finish(self._database, outcomes)) if outcomes else []

    async def progress(self, notes: Sequence[ProgressNote]) -> list[Fence]:
        """Keep the last progress of these runs; return the fences that are no longer current."""
        if not notes:
            return []
        return await self._told(self._database.once(lambda db: runs.progress(db, notes), steady=True))

    async def cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        """Return this worker's runs whose cancel was requested."""
        return await self._database.read(lambda db: runs.cancel_requests(db, worker_id))

    # --- streams ---

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        """Keep what these runs emitted; return the fences that are no longer current."""
        if not new:
            return []
        return await self._told(self._database.once(lambda db: streams.append_chunks(db, new)))

    async def stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        """Return where those tasks that exist are and how far their streams go."""
        return await self._database.read(lambda db: streams.stream_heads(db, task_ids))

    async def chunks(
        self, after: Mapping[str, int], *, limit: int = 100, most_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        """Return up to `limit` chunks a task and `most_bytes` in all that follow the given numbers."""
        return await self._database.read(lambda db: streams.chunks(db, after, limit, most_bytes), steady=True)

    # --- workers ---

    async def add_worker(self, worker: NewWorker) -> None:
        """Register a pool process; its lease runs from now."""
        await self._database.once(lambda db: workers.add_worker(db, worker))

    async def beat(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """Move these workers' leases; return the ids that are retired or unknown."""
        if not worker_ids:
            return set()
        return await workers.beat(self._database, worker_ids, lease_seconds)

    async def workers(self) -> list[WorkerRow]:
        """Return all workers that are not retired, and retired ones that still hold runs."""
        return await self._database.read(workers.workers)

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
        return await self._told(self._database.transact(lambda db: retire(db, worker_id)))

    async def orphans(self, limit: int = 500) -> list[Orphan]:
        """Return runs whose worker is retired, oldest first."""
        return await self._database.read(lambda db: workers.orphans(db, limit))

    async def begin_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        """Write down that a reaper passes; give runs without a worker's row one again."""
        return await self._database.transact(
            lambda db: workers.begin_pass(db, longest_gap_seconds, lease_seconds)
        )

    async def forget_workers(self, older_than_seconds: float) -> int:
        """Delete retired workers without runs that were retired so long ago; return how many."""
        return await self._database.once(lambda db: workers.forget_workers(db, older_than_seconds))

    # --- stewardship ---

    async def promote(self, limit: int = 500) -> int:
        """Move up to `limit` due tasks to ready, or put them off; return how many were due."""
        return await self._told_if_any(promote.promote(self._database, limit))

    async def unstage(self, limit: int = 5_000) -> int:
        """Move up to `limit` tasks of committed stages to where they belong; return how many."""
        return await self._told_if_any(self._database.once(lambda db: steward.unstage(db, limit)))

    async def sweep(self, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000) -> int:
        """Delete what has served its time, a transaction a kind; return how many rows went."""
        return await steward.sweep(
            self._database, finished_seconds=finished_seconds, dead_seconds=dead_seconds, limit=limit
        )

    async def checkpoint(self) -> None:
        """Fold what was counted since the last time into the roll-up."""
        await steward.fold(self._database)

    # --- dead letters ---

    async def dead_letters(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        """Return dead letters, the latest failure first, continuing after the id `after`."""
        return await self._database.transact(
            lambda db: dead.dead_letters(db, which, after, limit), snapshot=True
        )

    async def count_dead(self, which: TaskFilter) -> int:
        """Return how many dead letters match."""
        return await self._database.read(lambda db: dead.count_dead(db, which))

    async def redrive(
        self, task_ids: Sequence[str], *, args: Mapping[str, tuple[bytes, str]] | None = None
    ) -> dict[str, ActAnswer]:
        """Send dead letters back to the main queue; answer per id."""
        return await self._told(self._database.transact(lambda db: dead.redrive(db, task_ids, args or {})))

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        """Delete dead letters for good, with payload and history."""
        return await self._database.transact(lambda db: dead.purge(db, task_ids))

    # --- figures ---

    async def queue_stats(self, unserved: Unserved | None = None) -> list[QueueStats]:
        """Return each queue that holds a task or finished one in the last ten minutes, by name."""
        return await self._database.transact(lambda db: stats.queue_stats(db, unserved), snapshot=True)

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        """Keep what an application declares (functions, pools)."""
        await self._database.once(lambda db: stats.save_manifest(db, app, manifest))

    async def manifests(self) -> dict[str, dict[str, Any]]:
        """Return the kept manifests by application."""
        return await self._database.read(stats.manifests)

    # --- access ---

    async def add_token(self, token: NewToken) -> None:
        """Keep a token's digest with what it lets people do."""
        await self._database.once(lambda db: access.add_token(db, token))

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """Return the token with this digest, if it is good now."""
        return await self._database.read(lambda db: access.find_token(db, digest))

    async def tokens(self) -> list[TokenRow]:
        """Return all tokens that were ever made, the oldest first."""
        return await self._database.read(access.tokens)

    async def revoke_token(self, token_id: str) -> bool:
        """Make a token worthless for good; return whether there is one of this id."""
        return await self._database.once(lambda db: access.revoke_token(db, token_id))

    async def record(self, entries: Sequence[NewAuditEntry]) -> None:
        """Put changes on record, all or none."""
        await self._database.once(lambda db: access.record(db, entries))

    async def audit(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return the record, the newest first, continuing after the id `after`."""
        return await self._database.read(lambda db: access.audit(db, after, limit))

    # --- upstreams ---

    async def declare(self, declared: Sequence[Declared]) -> list[GateRow]:
        """Keep what an application declares of limits; return the rows that count, in the order given."""
        return await self._database.transact(lambda db: gates.declare(db, declared))

    async def gates(self) -> list[GateRow]:
        """Return every gate as it is stored."""
        return await self._database.read(gates.rows)

    async def upstreams(self) -> list[UpstreamRow]:
        """Return every upstream with what stands before it, by name."""
        return await self._database.transact(gates.upstreams, snapshot=True)

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        """Give an upstream other limits, from now on and for all; tell whether it is known."""
        return await self._told(self._database.transact(lambda db: gates.set_limits(db, upstream, limits)))

    async def park(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        """Park an upstream by hand, for some seconds or until it is opened; tell whether it is known."""
        return await self._told(self._database.transact(lambda db: gates.park(db, upstream, seconds, why)))

    async def open_gate(self, upstream: str) -> bool:
        """Open an upstream's gate by hand; tell whether it is known."""
        return await self._told(self._database.transact(lambda db: gates.open_gate(db, upstream)))

    async def probe(self, upstream: str) -> bool:
        """Let the next task of a parked upstream try whether it works; tell whether it is known."""
        return await self._told(self._database.transact(lambda db: gates.probe(db, upstream)))

    async def take_slot(
        self,
        upstream: str,
        *,
        patience_seconds: float,
        hold: Hold | None = None,
        on_last_attempt: bool = False,
    ) -> Slot:
        """Charge one call that no claim charged: a run's second one, or one outside any task."""
        return await self._database.transact(
            lambda db: permits.take_slot(db, upstream, patience_seconds, hold, on_last_attempt),
            repeatable=False,
        )

    async def give_back_permits(self, permit_ids: Sequence[str]) -> None:
        """Count these calls as in flight no longer."""
        await self._told(self._database.once(lambda db: permits.give_back(db, permit_ids)))

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        """Let these permits expire no earlier than so long from now."""
        await self._database.once(lambda db: permits.extend(db, permit_ids, seconds))

    async def tell(self, upstream: str, signal: Signal) -> Gate:
        """Let a failure that a call met move its upstream's gate; return the gate."""
        told = await self._database.transact(lambda db: gates.told(db, upstream, signal))
        return told.gate

    async def tell_of_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        """Let a call that tried a held upstream, and did not fail by it, move the gate."""
        await self._told(
            self._database.transact(lambda db: gates.tried(db, upstream, seconds, is_good=is_good))
        )

    async def answered(self, upstream: str) -> None:
        """Let a call that went well clear what failures left in its upstream's gate."""
        await self._database.transact(lambda db: gates.answered(db, upstream))

    async def learn(self, upstream: str, heard: Sequence[Heard]) -> GateRow | None:
        """Keep what answers showed of an upstream's limits; return its gate."""
        return await self._database.transact(lambda db: gates.learned(db, upstream, heard))

    async def budgets(self) -> list[BudgetRow]:
        """Return the retry budgets, the system's first, then those of upstreams by name."""
        return await self._database.transact(gates.budgets, snapshot=True)
