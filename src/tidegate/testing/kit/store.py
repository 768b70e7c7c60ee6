"""The store of one test: the SQLite store on a temporary file, with the test's clock."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tidegate.context import current_context
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.domain.retention import FinalTable, Retention, ages_of
from tidegate.errors import UsageError
from tidegate.store.common import ids
from tidegate.store.common.refusals import cannot_join
from tidegate.store.operation_rows import NewOperation, Payloads
from tidegate.store.rows import (
    ActionStatus,
    CancelRequest,
    CancelStatus,
    ClaimedTask,
    ClaimRequest,
    ClaimResult,
    EnqueueResult,
    NewTask,
)
from tidegate.store.sqlite import connection, next_due, schema
from tidegate.store.sqlite.deletion import undo_enqueue
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.kit.clock import KitClock
from tidegate.testing.kit.runner import KitRunner, connect_privately
from tidegate.testing.kit.within import TransactionCheck, follow_transaction

T = TypeVar("T")
LEAST_SECONDS = 0.01
"""Shortest time until the next claim: the claimer itself waits at least half of it."""
MEMORY = Path("/dev/shm")  # noqa: S108 - only the parent of private directories


class KitStore(SqliteStore):
    """The store of one test.

    Args:
        path: The database file. The file is created as a copy of an empty store.
        clock: The test's clock.
        joins: Whether the application's own database is PostgreSQL, so that enqueues may join transactions.
    """

    def __init__(self, path: Path, clock: KitClock, *, joins: bool = False) -> None:
        path.write_bytes(_empty_store())
        self.runner = KitRunner(path)
        super().__init__(path, runner=self.runner, clock=clock)
        self.clock = clock
        self._joins = joins
        self._open_transactions: list[TransactionCheck] = []
        """What drops the tasks of transactions that may have been rolled back since."""
        self.on_enqueued: Callable[[], Awaitable[None]] | None = None
        """Awaited after each enqueue is committed; None: nothing is."""
        self._own_runs: set[Fence] = set()
        """Every run that this store began."""
        self.claimed: dict[Fence, ClaimedTask] = {}
        """The runs that a drain began, until `forget_runs`."""
        self.outcomes: list[Outcome] = []
        """How runs ended, in the order of their ends, until `forget_runs`."""
        self.next_claim_at = float("inf")
        """When a limit will admit more tasks; the last claim left some because of it."""
        self.has_cancel_request = False
        """Whether someone asked for a cancel that no worker has seen yet."""
        self.failure: Exception | None = None
        """The error of a failed call by the engine; None if no call failed."""

    def drop_rolled_back(self) -> None:
        """Drop the tasks of transactions that were rolled back. Call this before tasks are read or run."""
        self._open_transactions = [has_ended for has_ended in self._open_transactions if not has_ended()]

    def now_complete(self, call: Coroutine[Any, Any, T]) -> T:
        """Run one of this store's calls to its end, with or without an event loop, and return its result."""
        return self.runner.complete(call)

    def has_ready(self) -> bool:
        """Return whether any task can run now."""
        return self.runner.run_now(next_due.has_ready)

    def next_due_at(self) -> float:
        """Return the moment at which the first waiting task is due; infinity if there is none."""
        return min(self.runner.run_now(next_due.next_due_at), self.next_claim_at)

    def next_tick_at(self) -> float:
        """Return the moment of the first tick of any schedule from now on; infinity if there is none."""
        return self.runner.run_now(lambda db: next_due.next_tick_at(db, self.clock()))

    def pass_over_ticks(self) -> None:
        """Leave out the ticks that have passed since the clock was moved last."""
        self.runner.run_now(lambda db: next_due.pass_over_ticks(db, self.clock()), Mode.WRITE)

    def next_expiry_at(self, retention: Retention) -> float:
        """Return the moment at which the first row may expire; infinity if none does."""
        ages = {table: min(ages_of(retention, table), default=math.inf) for table in FinalTable}
        return self.runner.run_now(
            lambda db: next_due.next_expiry_at(
                db, finished_seconds=ages[FinalTable.ARCHIVE], dead_seconds=ages[FinalTable.DEAD]
            )
        )

    def forget_runs(self) -> None:
        """Begin a new list of runs."""
        self.claimed, self.outcomes, self.failure = {}, [], None

    # --- the store's calls ---

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        self._refuse_runs_of_other_tests()
        answers = await super().enqueue(tasks)
        await self._enqueued()
        return answers

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        answers = self.enqueue_within_sync(conn, tasks)
        await self._enqueued()
        return answers

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        if not self._joins:
            raise cannot_join()
        joined = _JoinedTasks(self, tasks)
        if (has_ended := follow_transaction(conn, joined)) is not None:
            self._open_transactions.append(has_ended)
        return joined.answers

    def store_now(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store tasks at once, without running any."""
        return self.now_complete(super().enqueue(tasks))

    async def commit_batch(self, batch_id: str) -> dict[str, str]:
        answers = await super().commit_batch(batch_id)
        await self._enqueued()
        return answers

    async def redrive_now(
        self, operation: NewOperation, task_ids: Sequence[str], *, args: Payloads | None = None
    ) -> dict[str, ActionStatus]:
        answers = await super().redrive_now(operation, task_ids, args=args)
        await self._enqueued()
        return answers

    def _refuse_runs_of_other_tests(self) -> None:
        """Refuse the tasks of a thread that could not be ended after an earlier test.

        Raises:
            UsageError: The calling code is part of a run of another test.
        """
        run = current_context()
        if run is not None and Fence(run.task_id, run.run) not in self._own_runs:
            raise UsageError(
                f"a task of an earlier test still runs and enqueues: {run.function} {run.task_id}",
                fix="give the task a way to end in that test",
            )

    async def _enqueued(self) -> None:
        if self.on_enqueued is not None:
            await self.on_enqueued()

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelStatus]:
        answers = await super().cancel(task_ids, why=why, force=force)
        self.has_cancel_request = True
        return answers

    async def list_cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        self.has_cancel_request = False
        return await super().list_cancel_requests(worker_id)

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        try:
            claim = await super().claim(request)
        except Exception as error:
            self.failure = error
            raise
        seconds = claim.next_claim_seconds
        self.next_claim_at = float("inf") if seconds is None else self.clock() + max(LEAST_SECONDS, seconds)
        self.claimed |= {task.fence: task for task in claim.tasks}
        self._own_runs.update(task.fence for task in claim.tasks)
        return claim

    async def find_lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        return []  # a claim is answered before anything else runs, so none is lost

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        statuses = await super().finish(outcomes)
        self.outcomes += [
            outcome for outcome, status in zip(outcomes, statuses, strict=True) if status is FinishStatus.DONE
        ]
        return statuses


class _JoinedTasks:
    """Tasks that are part of a transaction of the code under test."""

    def __init__(self, store: KitStore, tasks: Sequence[NewTask]) -> None:
        self._store = store
        self._tasks = tasks
        self.answers = [EnqueueResult(task.id, True) for task in tasks]

    def store(self) -> None:
        self.answers[:] = self._store.store_now(self._tasks)

    def drop(self) -> None:
        created = tuple(ids.to_blob(answer.task_id) for answer in self.answers if answer.created)
        if created:
            self._store.runner.run_now(lambda db: undo_enqueue(db, created), Mode.WRITE)


def new_directory() -> Path:
    """Make a private directory for one test's store, in memory where the system has such a place."""
    has_memory = os.access(MEMORY, os.W_OK)
    return Path(tempfile.mkdtemp(prefix="tidegate-test-", dir=MEMORY if has_memory else None))


@cache
def _empty_store() -> bytes:
    """Return the content of an empty store's file. Made once in each process: a copy is cheaper."""
    with tempfile.TemporaryDirectory(prefix="tidegate-test-") as directory:
        path = Path(directory) / "empty.db"
        connection.check_build()
        connection.make_file(path)
        with contextlib.closing(connect_privately(path)) as db:
            with db:
                schema.upgrade(db)
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return path.read_bytes()
