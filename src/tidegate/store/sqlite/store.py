"""`SqliteStore`: the store contract on one file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import apsw

from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.domain.retention import Data, FinalTable
from tidegate.store.common import (
    due_schedules,
    forget,
    maps,
    operations,
    promote,
    retention,
    schedules,
    sending,
    workers,
)
from tidegate.store.common.migrate import log_newer_schema
from tidegate.store.common.refusals import cannot_join
from tidegate.store.common.session import Session
from tidegate.store.common.store import CommonStore
from tidegate.store.common.store_methods import Work as SessionWork
from tidegate.store.common.store_methods import write
from tidegate.store.map_rows import MapCounts, MapRow, NewMap
from tidegate.store.operation_rows import (
    LetterChannel,
    NewOperation,
    OperationRow,
    Payloads,
    Sending,
)
from tidegate.store.retention_rows import StoreSize
from tidegate.store.rows import (
    ActionStatus,
    ClaimRequest,
    ClaimResult,
    EnqueueResult,
    NewTask,
)
from tidegate.store.schedule_rows import Firing, ScheduleAnswer
from tidegate.store.sqlite import (
    actions,
    batches,
    claim,
    deletion,
    enqueue,
    finish,
    history,
    maintenance,
    schema,
    size,
    steps,
    streams,
    upkeep,
)
from tidegate.store.sqlite import redrive as dead_letters
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.job import Mode, Precheck, T, Work
from tidegate.store.sqlite.work import SqliteSession, complete
from tidegate.store.sqlite.writer import BUSY_SECONDS, JobRunner, WriterThread
from tidegate.store.step_rows import BegunStep, EndedStep, StepBegin, StepEnd
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk

P = ParamSpec("P")
_Method = Callable[Concatenate["SqliteStore", P], Coroutine[Any, Any, T]]


def _on_connection(operation: Callable[Concatenate[apsw.Connection, float, P], T]) -> _Method[P, T]:
    """Return a store method that runs an operation which writes, on the connection itself."""

    async def method(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write_on_connection(lambda db: operation(db, self._now(), *args, **kwargs))

    return method


class SqliteStore(CommonStore):
    """The store in a SQLite file, opened at the first use. Any event loops and threads may share it.

    Args:
        path: The database file. The file is created, with its directory, if it does not exist.
        runner: Runs the work; by default on its own threads.
        clock: The store's clock in seconds since the epoch; by default this host's clock.
        busy_seconds: How long a call waits for the write lock before StoreBusyError.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        runner: JobRunner | None = None,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._runner = runner or WriterThread(self.path, busy_seconds=busy_seconds)
        self._now = clock or HighWaterClock()

    async def _read(self, work: SessionWork[T], *, snapshot: bool = False, generic_plan: bool = False) -> T:
        """Run work that reads. Every read here is one snapshot."""
        return await self._runner.run(self._on_session(work), Mode.READ)

    async def _write(
        self,
        work: SessionWork[T],
        *,
        alone: bool = False,
        generic_plan: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Run work in a transaction. `notify` is not needed here: the watcher notices every commit."""
        return await self._runner.run(self._on_session(work), Mode.WRITE)

    def _on_session(self, work: SessionWork[T]) -> Work[T]:
        return lambda link: complete(work(SqliteSession(link, self._now())))

    async def _write_on_connection(self, work: Work[T], *, precheck: Precheck[T] | None = None) -> T:
        return await self._runner.run(work, Mode.WRITE, precheck=precheck)

    # --- lifecycle ---

    async def open(self) -> None:
        """Create the schema of a new file, or check the schema of an existing one."""
        log_newer_schema(await self.count_newer_migrations(), str(self.path))

    async def count_newer_migrations(self) -> int:
        return await self._runner.run(schema.count_newer_migrations, Mode.READ)

    async def close(self) -> None:
        """Finish running calls and close the file; a later call opens it again."""
        await self._runner.close()

    async def migrate(self) -> list[str]:
        return await self._runner.run(lambda db: upkeep.upgrade(db, self.path), Mode.BARE)

    async def now(self) -> float:
        return self._now()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        await self._runner.wait_for_change(timeout_seconds)

    async def check_integrity(self) -> list[str]:
        return await self._runner.run(upkeep.check_integrity, Mode.READ)

    # --- tasks ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        if not tasks:
            return []
        return await self._write_on_connection(lambda db: enqueue.enqueue(db, self._now(), tasks))

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Raise `OptionError`: a SQLite store cannot join a transaction of another connection."""
        raise cannot_join()

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Raise `OptionError`, as `enqueue_within`."""
        raise cannot_join()

    enqueue_part = _on_connection(batches.enqueue_part)

    async def commit_batch(self, batch_id: str) -> dict[str, str]:
        done = await self._write_on_connection(lambda db: batches.commit_batch(db, self._now(), batch_id))
        if isinstance(done, batches.RefusedBatch):
            raise done.error()
        return done

    async def drop_batch(self, batch_id: str) -> None:
        await self._write_on_connection(lambda db: batches.drop_batch(db, batch_id))

    async def enqueue_map_part(self, map_id: str, batch_id: str, tasks: Sequence[NewTask]) -> None:
        await self._write_on_connection(
            lambda db: batches.enqueue_part(db, self._now(), batch_id, tasks, map_id=map_id)
        )

    async def commit_map(self, new: NewMap, batch_id: str | None) -> MapRow:
        async def commit(db: SqliteSession) -> MapRow:
            stored = await maps.add_map(db, new)
            if stored.id == new.id and batch_id is not None:
                batches.commit_batch(db.link, db.at, batch_id)
            return stored

        return await self._write(commit)

    async def end_map(self, map_id: str, counts: MapCounts, callback: NewTask | None) -> bool:
        async def end(db: SqliteSession) -> bool:
            is_first = await maps.record_end(db, map_id, counts, None if callback is None else callback.id)
            if is_first and callback is not None:
                enqueue.enqueue(db.link, db.at, [callback])
            return is_first

        return await self._write(end)

    cancel = _on_connection(actions.cancel)
    reprioritise = _on_connection(actions.reprioritise)
    run_now = _on_connection(actions.run_now)

    # --- work ---

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim tasks. If there is no task to claim, the write lock is not taken."""
        return await self._write_on_connection(
            lambda db: claim.claim(db, self._now(), request),
            precheck=lambda db: claim.precheck(db, self._now(), request),
        )

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        if not outcomes:
            return []
        return await self._write_on_connection(lambda db: finish.finish(db, self._now(), outcomes))

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        if not new:
            return []
        return await self._write_on_connection(lambda db: streams.append_chunks(db, self._now(), new))

    async def read_chunks(
        self, after: Mapping[str, int], *, limit: int = 100, max_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        return await self._runner.run(lambda db: streams.read_chunks(db, after, limit, max_bytes), Mode.READ)

    async def begin_steps(self, begins: Sequence[StepBegin]) -> list[BegunStep]:
        if not begins:
            return []
        return await self._write_on_connection(lambda db: steps.begin_steps(db, self._now(), begins))

    async def end_steps(self, ends: Sequence[StepEnd]) -> list[EndedStep]:
        if not ends:
            return []
        return await self._write_on_connection(lambda db: steps.end_steps(db, self._now(), ends))

    begin_cached_step = write(steps.begin_cached_step)
    end_cached_step = write(steps.end_cached_step)

    async def extend_leases(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        if not worker_ids:
            return set()
        return await self._write(lambda db: workers.extend_leases(db, worker_ids, lease_seconds))

    # --- maintenance ---

    async def promote(self, limit: int = 500) -> int:
        """Promote due tasks. If no task is due, the write lock is not taken."""
        return await self._write_on_connection(
            self._on_session(lambda db: promote.promote(db, limit)),
            precheck=self._on_session(_has_nothing_due),
        )

    async def release_batches(self, limit: int = 5_000) -> int:
        return await self._write_on_connection(
            lambda db: batches.release_batches(db, self._now(), limit), precheck=batches.precheck_release
        )

    async def delete_expired(self, *, ticks_seconds: float, limit: int = 1_000) -> int:
        return await self._write_on_connection(
            lambda db: maintenance.delete_expired(db, self._now(), ticks_seconds=ticks_seconds, limit=limit),
            precheck=lambda db: maintenance.precheck_delete_expired(
                db, self._now(), ticks_seconds=ticks_seconds
            ),
        )

    async def delete_final_tasks(
        self, table: FinalTable, task_ids: Sequence[str], *, until_at: float
    ) -> list[str]:
        return await self._write_on_connection(
            lambda db: maintenance.delete_final_tasks(db, table, task_ids, until_at=until_at)
        )

    async def delete_task_parts(self, task_ids: Sequence[str], parts: Collection[Data]) -> int:
        """Remove parts of tasks. If there are no such parts, the write lock is not taken."""

        async def has_none(db: Session) -> int | None:
            return None if await retention.list_tasks_with_parts(db, task_ids, parts) else 0

        return await self._write_on_connection(
            self._on_session(lambda db: retention.delete_task_parts(db, task_ids, parts)),
            precheck=self._on_session(has_none),
        )

    async def forget_tasks(self, task_ids: Sequence[str]) -> list[str]:
        async def forget_all(db: SqliteSession) -> list[str]:
            found = await forget.find_forgettable(db, task_ids)
            if found:
                await forget.remove_traces(db, found)
                deletion.delete_tasks(db.link, tuple(found))
            return [db.text(task) for task in found]

        return await self._write(forget_all)

    forget_tenant = write(forget.forget_tenant)

    async def erase_deleted(self) -> str:
        """Rewrite the file. Writers of all processes wait meanwhile."""
        return await self._runner.run(
            lambda db: upkeep.erase_deleted(db, self.path, self._busy_seconds), Mode.BARE
        )

    async def get_sizes(self) -> StoreSize:
        return await self._runner.run(lambda db: size.get_sizes(db, self.path), Mode.READ)

    async def compact_history(self, limit: int = 1_000) -> int:
        """Replace old counters by sums. If there are none, the write lock is not taken."""
        return await self._write_on_connection(
            lambda db: history.compact(db, self._now(), limit),
            precheck=lambda db: history.precheck_compact(db, self._now()),
        )

    async def checkpoint(self) -> None:
        """Checkpoint the write-ahead log; truncate a large one if no process writes."""
        await self._runner.run(lambda db: upkeep.checkpoint(db, self.path, self._busy_seconds), Mode.BARE)

    # --- schedules ---

    async def fire_schedules(self, firings: Sequence[Firing]) -> int:
        async def fire(db: SqliteSession) -> int:
            tasks = await due_schedules.record_firings(db, firings)
            enqueue.enqueue(db.link, db.at, tasks)
            return len(tasks)

        return await self._write(fire)

    async def run_schedule(self, name: str, task: NewTask, *, counts: bool) -> ScheduleAnswer:
        async def run(db: SqliteSession) -> ScheduleAnswer:
            status = await schedules.record_run(db, name, task, counts=counts)
            if status is ScheduleAnswer.DONE:
                enqueue.enqueue(db.link, db.at, [task])
            return status or ScheduleAnswer.DONE

        return await self._write(run)

    # --- dead letters ---

    redrive = _on_connection(dead_letters.redrive)
    purge = _on_connection(dead_letters.purge)

    async def send_letters(
        self, operation: OperationRow, channels: Sequence[LetterChannel]
    ) -> Sending | None:
        return await self._write(
            lambda db: sending.send_letters(db, operation, channels, dead_letters.redrive_within(db))
        )

    async def redrive_now(
        self, operation: NewOperation, task_ids: Sequence[str], *, args: Payloads | None = None
    ) -> dict[str, ActionStatus]:
        return await self._write(
            lambda db: sending.redrive_now(db, operation, task_ids, args, dead_letters.redrive_within(db))
        )

    async def purge_letters(
        self, operation_id: str, task_ids: Sequence[str]
    ) -> dict[str, ActionStatus] | None:
        return await self._write(
            lambda db: operations.purge_letters(db, operation_id, task_ids, dead_letters.purge_within(db))
        )


async def _has_nothing_due(db: Session) -> int | None:
    """Return 0 if there is nothing to promote: no task is due, and none may leave early."""
    return None if await promote.has_work(db) else 0
