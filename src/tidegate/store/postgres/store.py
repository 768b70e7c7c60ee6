"""`PostgresStore`: the store contract on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tidegate.domain.failure import CallFailure
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.limits.values import Gate
from tidegate.store.common import (
    due_schedules,
    forget,
    maps,
    operations,
    promote,
    retention,
    runs,
    schedules,
    sending,
    workers,
)
from tidegate.store.common.migrate import log_newer_schema
from tidegate.store.common.session import Session
from tidegate.store.common.store import CommonStore
from tidegate.store.common.store_methods import read, write
from tidegate.store.map_rows import MapCounts, MapRow, NewMap
from tidegate.store.operation_rows import (
    LetterChannel,
    NewOperation,
    OperationRow,
    Payloads,
    Sending,
)
from tidegate.store.postgres import (
    actions,
    batches,
    claim,
    enqueue,
    erase,
    finish,
    history,
    maintenance,
    schema,
    size,
    steps,
    streams,
)
from tidegate.store.postgres import redrive as dead_letters
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.channels import KnownChannels
from tidegate.store.postgres.database import BUSY_SECONDS, Database, Work
from tidegate.store.postgres.enqueue_within import TransactionEnqueuer, identity
from tidegate.store.postgres.errors import refused_content
from tidegate.store.postgres.facts import (
    SUPERVISOR_CONNECTIONS,
    connections_needed,
    describe_connections,
    server_facts,
)
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.watch import PostgresWatcher
from tidegate.store.rows import (
    ActionStatus,
    ClaimRequest,
    ClaimResult,
    EnqueueResult,
    NewTask,
    ProgressUpdate,
)
from tidegate.store.schedule_rows import Firing, ScheduleAnswer
from tidegate.store.step_rows import BegunStep, EndedStep, StepBegin, StepEnd
from tidegate.store.streams import NewChunk
from tidegate.threads.bridge import start_in_background

T = TypeVar("T")

_LEAST_BEAT_SECONDS = 1.0
"""Shortest time limit of a heartbeat, even for a short lease: a busy machine may need it."""


class PostgresStore(CommonStore):
    """The store on a PostgreSQL server. The store connects at its first use; any event loops may share it.

    Args:
        url: `postgresql://…`; `Address` documents its options.
        clock: The store's clock in seconds since the epoch, for tests; the server's by default.
        busy_seconds: How long a call may take in all before StoreBusyError or StoreUnavailableError.
        supervises: Whether this process only supervises others, so that it needs few connections.
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
        """The address in the URL, even if this process uses fewer connections."""
        self._supervises = supervises
        if supervises:
            address = replace(address, connections=min(address.connections, SUPERVISOR_CONNECTIONS))
        self._database = Database(address, clock=clock, busy_seconds=busy_seconds)
        self._latest = 0.0
        self._channels = KnownChannels()
        self._unwritten = finish.Successes()
        self._watch = PostgresWatcher(self._database)
        self._transaction_enqueuer = TransactionEnqueuer(
            self.address.schema, self._checked_identity, self._notify_from_anywhere
        )

    async def _read(self, work: Work[T], *, snapshot: bool = False, generic_plan: bool = False) -> T:
        """Run work that only reads; a single statement is its own snapshot."""
        if snapshot:
            return await self._database.transact(work, snapshot=True)
        return await self._database.read(work, generic_plan=generic_plan)

    async def _write(
        self,
        work: Work[T],
        *,
        alone: bool = False,
        generic_plan: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Run work in one transaction. A single statement needs no explicit one."""
        do = self._database.autocommit if alone else self._database.transact
        answer = await do(work, repeatable=repeatable, generic_plan=generic_plan)
        return self._notify(answer) if notify else answer

    def _notify(self, answer: T) -> T:
        """Notify waiting tasks and processes that work is committed; return the answer of the work.

        An answer of 0 or False shows that nothing changed, so no process is notified.
        """
        if answer != 0:
            self._watch.committed()
        return answer

    def _notify_from_anywhere(self) -> None:
        """Notify other processes of a caller's own commit, which may have happened outside any event loop."""

        async def notify() -> None:
            self._watch.committed()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            start_in_background(notify())
        else:
            self._watch.committed()

    # --- lifecycle ---

    async def open(self) -> None:
        """Connect and check the schema. This never creates it."""
        log_newer_schema(await self.count_newer_migrations(), self._database.location)

    count_newer_migrations = read(schema.count_newer_migrations, snapshot=True)

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        await self._watch.close()
        await self._database.close()

    async def _checked_identity(self) -> str:
        """Return the database's identity after a schema check: `enqueue_within` works without `open`."""
        await self.count_newer_migrations()
        return await self._write(identity, alone=True)

    async def migrate(self) -> list[str]:
        return await schema.upgrade(self._database)

    upgrade_script = read(schema.script, snapshot=True)
    server_facts = read(server_facts)

    async def describe_connections(self, *, processes: int, supervisors: int) -> tuple[str, bool]:
        """Return a sentence on how many connections these may open in all, and whether that is too many.

        If it is too many, a supervising store uses one connection from then on, because the workers need the
        rest.
        """
        facts = await self.server_facts()
        effect = describe_connections(self.address, facts, processes=processes, supervisors=supervisors)
        needed = connections_needed(self.address, processes=processes, supervisors=supervisors)
        is_too_much = needed > facts.connections_for_all
        if is_too_much and self._supervises:
            self._database.narrow(1)
        return effect, is_too_much

    async def is_pooled(self) -> bool:
        """Whether a pooler in transaction mode is in between."""
        return await self._database.is_pooled()

    async def now(self) -> float:
        self._latest = max(self._latest, await self._read(_now))
        return self._latest

    async def wait_for_change(self, timeout_seconds: float) -> None:
        await self._watch.wait_for_change(timeout_seconds)

    check_integrity = read(maintenance.check_integrity, snapshot=True)

    # --- tasks ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        return self._notify(await enqueue.enqueue(self._database, tasks)) if tasks else []

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        return await self._transaction_enqueuer.enqueue(conn, tasks) if tasks else []

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        return self._transaction_enqueuer.enqueue_sync(conn, tasks) if tasks else []

    async def enqueue_part(self, batch_id: str, tasks: Sequence[NewTask]) -> None:
        await batches.enqueue_part(self._database, batch_id, tasks)

    async def commit_batch(self, batch_id: str) -> dict[str, str]:
        return self._notify(await batches.commit_batch(self._database, batch_id))

    async def drop_batch(self, batch_id: str) -> None:
        await batches.drop_batch(self._database, batch_id)

    async def enqueue_map_part(self, map_id: str, batch_id: str, tasks: Sequence[NewTask]) -> None:
        await batches.enqueue_part(self._database, batch_id, tasks, map_id=map_id)

    async def commit_map(self, new: NewMap, batch_id: str | None) -> MapRow:
        async def commit(db: PostgresSession) -> MapRow:
            stored = await maps.add_map(db, new)
            if stored.id == new.id and batch_id is not None:
                await batches.commit_in_transaction(db, batch_id)
            return stored

        with enqueue.wrap_unstorable():
            return await self._write(commit, notify=True)

    async def end_map(self, map_id: str, counts: MapCounts, callback: NewTask | None) -> bool:
        async def end(db: PostgresSession) -> bool:
            is_first = await maps.record_end(db, map_id, counts, None if callback is None else callback.id)
            if is_first and callback is not None:
                await enqueue.enqueue_in_transaction(db, [callback])
            return is_first

        return await self._write(end, notify=True)

    cancel = write(actions.cancel, notify=True)
    reprioritise = write(actions.reprioritise, notify=True)
    run_now = write(actions.run_now, notify=True)

    # --- work ---

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim tasks. If there is no task to claim, nothing is locked."""
        return await claim.claim(self._database, self._channels, request)

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        """Write outcomes. A batch refused because of its content is written in several transactions."""
        if not outcomes:
            return []
        return self._notify(await finish.finish(self._database, self._unwritten, outcomes))

    async def report_failure(self, upstream: str, failure: CallFailure) -> Gate:
        # A failure is judged by the successes before it.
        await finish.write_successes(self._database, self._unwritten.take([upstream]))
        return await super().report_failure(upstream, failure)

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        async def keep(db: Session) -> list[Fence]:
            with refused_content():
                return await runs.save_progress(db, notes)

        return await self._write(keep, alone=True, generic_plan=True, notify=True) if notes else []

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        if not new:
            return []
        return await self._write(lambda db: streams.append_chunks(db, new), alone=True, notify=True)

    read_chunks = read(streams.read_chunks, generic_plan=True)

    async def begin_steps(self, begins: Sequence[StepBegin]) -> list[BegunStep]:
        if not begins:
            return []
        return await self._write(lambda db: steps.begin_steps(db, begins), alone=True, generic_plan=True)

    async def end_steps(self, ends: Sequence[StepEnd]) -> list[EndedStep]:
        if not ends:
            return []
        return await self._write(lambda db: steps.end_steps(db, ends), alone=True, generic_plan=True)

    begin_cached_step = write(steps.begin_cached_step, generic_plan=True)
    end_cached_step = write(steps.end_cached_step, generic_plan=True)

    async def extend_leases(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """Extend leases.

        An attempt fails after a third of the lease, so that the next heartbeat comes in time.
        """
        if not worker_ids:
            return set()
        seconds = max(_LEAST_BEAT_SECONDS, lease_seconds / 3) if lease_seconds else None
        return await self._database.autocommit(
            lambda db: workers.extend_leases(db, worker_ids, lease_seconds),
            seconds=seconds,
            generic_plan=True,
            beats=True,
        )

    # --- maintenance ---

    async def promote(self, limit: int = 500) -> int:
        """Promote due tasks. If no task is due, nothing is locked."""
        if not await self._write(promote.has_work, alone=True):
            return 0
        return await self._write(lambda db: promote.promote(db, limit), notify=True)

    release_batches = write(maintenance.release_batches, alone=True, notify=True)

    async def delete_expired(self, *, ticks_seconds: float, limit: int = 1_000) -> int:
        """Delete expired rows, each kind in its own transaction."""
        return await maintenance.delete_expired(self._database, ticks_seconds=ticks_seconds, limit=limit)

    delete_final_tasks = write(maintenance.delete_final_tasks)
    delete_task_parts = write(retention.delete_task_parts)
    get_sizes = read(size.get_sizes, snapshot=True)
    forget_tasks = write(maintenance.forget_tasks)
    forget_tenant = write(forget.forget_tenant)

    async def erase_deleted(self) -> str:
        """Rewrite all tables, each in its own transaction."""
        return await erase.erase_deleted(self._database)

    async def compact_history(self, limit: int = 1_000) -> int:
        """Replace old counters by sums, each kind in its own transaction."""
        return await history.compact(self._database, limit)

    async def checkpoint(self) -> None:
        """Fold the counts since the last fold into the roll-up."""
        await history.fold(self._database)

    # --- schedules ---

    async def fire_schedules(self, firings: Sequence[Firing]) -> int:
        async def fire(db: PostgresSession) -> int:
            tasks = await due_schedules.record_firings(db, firings)
            await enqueue.enqueue_unnamed(db, tasks)
            return len(tasks)

        with enqueue.wrap_unstorable():
            return await self._write(fire, notify=True)

    async def run_schedule(self, name: str, task: NewTask, *, counts: bool) -> ScheduleAnswer:
        async def run(db: PostgresSession) -> ScheduleAnswer:
            status = await schedules.record_run(db, name, task, counts=counts)
            if status is ScheduleAnswer.DONE:
                await enqueue.enqueue_unnamed(db, [task])
            return status or ScheduleAnswer.DONE

        with enqueue.wrap_unstorable():
            return await self._write(run, notify=True)

    # --- dead letters ---

    redrive = write(dead_letters.redrive, notify=True)
    purge = write(dead_letters.purge)

    async def send_letters(
        self, operation: OperationRow, channels: Sequence[LetterChannel]
    ) -> Sending | None:
        effect = await self._write(
            lambda db: sending.send_letters(db, operation, channels, dead_letters.redrive_within(db))
        )
        if effect is not None and effect.sent:
            self._watch.committed()
        return effect

    async def redrive_now(
        self, operation: NewOperation, task_ids: Sequence[str], *, args: Payloads | None = None
    ) -> dict[str, ActionStatus]:
        return await self._write(
            lambda db: sending.redrive_now(db, operation, task_ids, args, dead_letters.redrive_within(db)),
            notify=True,
        )

    async def purge_letters(
        self, operation_id: str, task_ids: Sequence[str]
    ) -> dict[str, ActionStatus] | None:
        return await self._write(
            lambda db: operations.purge_letters(db, operation_id, task_ids, dead_letters.purge_within(db))
        )


async def _now(db: Session) -> float:
    return await db.now()
