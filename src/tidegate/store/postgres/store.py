"""`PostgresStore`: the store contract on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tidegate._bridge import begin
from tidegate.domain.outcome import Answer, Fence, Outcome
from tidegate.domain.spec import Priority
from tidegate.store.common import promote, runs, workers
from tidegate.store.common.session import Session
from tidegate.store.common.store import CommonStore, Work
from tidegate.store.migrate import tell_ahead
from tidegate.store.postgres import (
    acts,
    claim,
    enqueue,
    finish,
    redrive,
    schema,
    stages,
    steward,
    streams,
    upkeep,
)
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.database import BUSY_SECONDS, Database
from tidegate.store.postgres.facts import (
    SUPERVISOR_CONNECTIONS,
    ServerFacts,
    connections_needed,
    connections_told,
    server_facts,
)
from tidegate.store.postgres.joined import Joined, identity
from tidegate.store.postgres.lanes import KnownLanes
from tidegate.store.postgres.watch import Watch
from tidegate.store.postgres.wrap import refused_content
from tidegate.store.rows import ActAnswer, CancelAnswer, Claim, ClaimAsk, Enqueued, NewTask, ProgressNote
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk

T = TypeVar("T")

_LEAST_BEAT_SECONDS = 1.0
"""However short the lease: a busy machine may need so long."""


class PostgresStore(CommonStore):
    """The store on a PostgreSQL server: connected at the first use, for any number of event loops.

    Args:
        url: `postgresql://…`; what else it may say is in `Address`.
        clock: The store's clock in seconds since the epoch, for tests; the server's by default.
        busy_seconds: How long a call may take in all before StoreBusyError or StoreUnavailableError.
        supervises: Whether this process only looks after others: it needs few connections.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
        supervises: bool = False,
    ) -> None:
        self.address = address = parse_address(url)
        """As the URL says, also where this process uses fewer connections."""
        self._supervises = supervises
        if supervises:
            address = replace(address, connections=min(address.connections, SUPERVISOR_CONNECTIONS))
        self._database = Database(address, clock=clock, busy_seconds=busy_seconds)
        self._latest = 0.0
        self._lanes = KnownLanes()
        self._watch = Watch(self._database)
        self._joined = Joined(self.address.schema, self._checked_identity, self._tell_from_anywhere)

    async def _read(self, work: Work[T], *, snapshot: bool = False, steady: bool = False) -> T:
        """Do work that only reads; a single statement is its own snapshot."""
        if snapshot:
            return await self._database.transact(work, snapshot=True)
        return await self._database.read(work, steady=steady)

    async def _write(
        self,
        work: Work[T],
        *,
        alone: bool = False,
        steady: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Do work in one transaction, which a single statement is by itself."""
        do = self._database.once if alone else self._database.transact
        answer = await do(work, repeatable=repeatable, steady=steady)
        if notify:
            self._watch.committed()
        return answer

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
        return await self._database.transact(schema.check, snapshot=True)

    async def close(self) -> None:
        """Close all connections; a later call makes new ones."""
        await self._watch.close()
        await self._database.close()

    async def _checked_identity(self) -> str:
        """Return which database this is, once its schema fits; a caller's connection comes without `open`."""
        await self.ahead()
        return await self._database.once(identity)

    async def migrate(self) -> list[str]:
        return await schema.upgrade(self._database)

    async def upgrade_script(self) -> str:
        """Return what `migrate` would run, for a person to run; empty if there is nothing to do."""
        return await self._database.transact(schema.script, snapshot=True)

    async def server_facts(self) -> ServerFacts:
        """Return what a doctor wants to know of the server."""
        return await self._database.read(server_facts)

    async def connections_told(self, *, processes: int, supervisors: int) -> tuple[str, bool]:
        """Say how many connections these may open in all; return whether they are more than there are.

        If so, a store that supervises uses one connection from then on: the workers need the others.
        """
        facts = await self.server_facts()
        told = connections_told(self.address, facts, processes=processes, supervisors=supervisors)
        needed = connections_needed(self.address, processes=processes, supervisors=supervisors)
        is_too_much = needed > facts.connections_for_all
        if is_too_much and self._supervises:
            self._database.narrow(1)
        return told, is_too_much

    async def is_pooled(self) -> bool:
        """Whether a pooler in transaction mode is in between."""
        return await self._database.is_pooled()

    async def now(self) -> float:
        self._latest = max(self._latest, await self._database.read(_now))
        return self._latest

    async def changed(self, timeout_seconds: float) -> None:
        await self._watch.changed(timeout_seconds)

    async def check(self) -> list[str]:
        return await self._database.transact(upkeep.check, snapshot=True)

    # --- tasks ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return await self._told(enqueue.enqueue(self._database, tasks)) if tasks else []

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return await self._joined.enqueue(conn, tasks) if tasks else []

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return self._joined.enqueue_sync(conn, tasks) if tasks else []

    async def stage(self, stage_id: str, tasks: Sequence[NewTask]) -> None:
        await stages.stage(self._database, stage_id, tasks)

    async def commit_stage(self, stage_id: str) -> dict[str, str]:
        return await self._told(stages.commit_stage(self._database, stage_id))

    async def drop_stage(self, stage_id: str) -> None:
        await stages.drop_stage(self._database, stage_id)

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelAnswer]:
        return await self._told(
            self._database.transact(lambda db: acts.cancel(db, task_ids, why, force=force))
        )

    async def reprioritise(self, task_ids: Sequence[str], priority: Priority) -> dict[str, ActAnswer]:
        return await self._told(self._database.transact(lambda db: acts.reprioritise(db, task_ids, priority)))

    async def hurry(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        return await self._told(self._database.transact(lambda db: acts.hurry(db, task_ids)))

    # --- work ---

    async def claim(self, ask: ClaimAsk) -> Claim:
        """Nothing is locked while there is no task to take."""
        return await claim.claim(self._database, self._lanes, ask)

    async def finish(self, outcomes: Sequence[Outcome]) -> list[Answer]:
        """A batch that is refused for its content is written in parts, each a transaction of its own."""
        return await self._told(finish.finish(self._database, outcomes)) if outcomes else []

    async def progress(self, notes: Sequence[ProgressNote]) -> list[Fence]:
        async def keep(db: Session) -> list[Fence]:
            with refused_content():
                return await runs.progress(db, notes)

        return await self._write(keep, alone=True, steady=True, notify=True) if notes else []

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        if not new:
            return []
        return await self._told(self._database.once(lambda db: streams.append_chunks(db, new)))

    async def chunks(
        self, after: Mapping[str, int], *, limit: int = 100, most_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        return await self._database.read(lambda db: streams.chunks(db, after, limit, most_bytes), steady=True)

    async def beat(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """A silent connection is given up after a third of the lease, so that another beat comes in time."""
        if not worker_ids:
            return set()
        seconds = max(_LEAST_BEAT_SECONDS, lease_seconds / 3) if lease_seconds else None
        return await self._database.once(
            lambda db: workers.beat(db, worker_ids, lease_seconds),
            seconds=seconds,
            steady=True,
            beats=True,
        )

    # --- maintenance ---

    async def promote(self, limit: int = 500) -> int:
        """Nothing is locked while no task is due."""
        if not await self._database.once(promote.has_work):
            return 0
        return await self._told_if_any(self._database.transact(lambda db: promote.promote(db, limit)))

    async def unstage(self, limit: int = 5_000) -> int:
        return await self._told_if_any(self._database.once(lambda db: steward.unstage(db, limit)))

    async def sweep(self, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000) -> int:
        """Each kind is a transaction of its own."""
        return await steward.sweep(
            self._database, finished_seconds=finished_seconds, dead_seconds=dead_seconds, limit=limit
        )

    async def checkpoint(self) -> None:
        """Fold what was counted since the last time into the roll-up."""
        await steward.fold(self._database)

    # --- dead letters ---

    async def redrive(
        self, task_ids: Sequence[str], *, args: Mapping[str, tuple[bytes, str]] | None = None
    ) -> dict[str, ActAnswer]:
        return await self._told(self._database.transact(lambda db: redrive.redrive(db, task_ids, args or {})))

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActAnswer]:
        return await self._database.transact(lambda db: redrive.purge(db, task_ids))


async def _now(db: Session) -> float:
    return await db.now()
