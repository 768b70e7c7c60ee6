"""The SQLite file that tasks are moved from: sealed, read in batches, with a record of what has arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import apsw.ext

from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError, StoreBusyError
from tidegate.store.common.statements import read_statements
from tidegate.store.sqlite import query, schema
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.sqlite.writer import BUSY_SECONDS, WriterThread
from tidegate.store.transfer.rows import Batch, Table

_SQL = read_statements(Path(__file__).parent / "sql", "source")

TASK_TABLES = (
    "task", "payload", "ready", "waiting", "archive", "result", "dead", "attempt", "action", "progress",
    "usage", "stream", "chunk", "step", "doubt", "event_wait", "approval", "cache_wait",
    "task_after",
    "provider_job", "provider_job_item",
)  # fmt: skip
"""The tables whose rows are copied with their task. The names it holds are copied separately."""
SHARED_TABLES = (
    "gate", "pause", "control", "manifest", "token", "schedule", "schedule_set", "tick", "alert_mute",
    "failure_group", "failure_mark", "event", "cached_result",
)  # fmt: skip
"""The tables whose rows belong to no task. All their rows are copied. Only of ticks, those that no longer
matter are left out."""


LATE_TABLES = ("task_wait", "map", "map_deleted")
"""The tables that are copied after the tasks. Else maintenance at the target would take a map for
complete before its items arrive, and would wake a task before those that it waits for arrive."""


class Source:
    """A SQLite file to move from.

    Args:
        path: The database file, which must exist.
        clock: The store's clock, for tests; this host's by default.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] | None = None) -> None:
        self.path = path
        self._now = clock or HighWaterClock()
        self._runner = WriterThread(path.absolute(), busy_seconds=BUSY_SECONDS)
        self._store = SqliteStore(path, runner=self._runner, clock=self._now)

    async def open(self) -> None:
        """Check the schema. Raise SchemaError if it is not this version's."""
        await self._runner.run(schema.check_same, Mode.READ)

    async def close(self) -> None:
        """Close the file."""
        await self._store.close()

    async def require_idle(self) -> None:
        """Raise `NotAcceptedError` if a worker or a task is running.

        The file may still change afterwards; `seal` repeats the check and then prevents that.

        Raises:
            NotAcceptedError: A worker is alive, or a task is running.
        """
        await self._runner.run(lambda db: _require_idle(db, self._now()), Mode.READ)

    async def seal(self, target_id: str, location: str) -> None:
        """Prevent all claims, enqueues and changes in this file from now on. Safe to repeat.

        Args:
            target_id: The target's identity.
            location: The target's server and database, without credentials.

        Raises:
            NotAcceptedError: A worker is alive, a task is running, or a transfer to another target has begun.
            StoreBusyError: A client is enqueueing.
        """
        if await self.destination() is None:
            while await self._store.release_batches():
                pass
            for operation in await self._store.list_open_operations():
                while await self._store.record_outcomes(operation.id):
                    pass
        await self._runner.run(lambda db: _seal(db, self._now(), target_id, location), Mode.WRITE)

    async def destination(self) -> tuple[str, str] | None:
        """Return identity and location of the target this file is sealed for; None if it is not sealed."""
        return await self._runner.run(_destination, Mode.READ)

    async def unseal(self) -> None:
        """Allow work in this file again, and delete the record of what has arrived at a target."""
        await self._runner.run(_unseal, Mode.WRITE)

    async def states(self, *, finished: bool) -> Counter[str]:
        """Return the number of tasks in each state that is transferred."""
        rows = await self._runner.run(lambda db: query.rows(db, _SQL["states"], (finished,)), Mode.READ)
        return Counter(dict(rows))

    async def next_batch(self, after: bytes, *, finished: bool, limit: int) -> Batch | None:
        """Return the next tasks by id that are not recorded as arrived; None after the last."""
        return await self._runner.run(lambda db: _next_batch(db, after, finished, limit), Mode.READ)

    async def next_ids(self, after: bytes, limit: int) -> tuple[bytes, ...]:
        """Return the next task ids, in any state."""
        return await self._runner.run(lambda db: query.column(db, _SQL["any"], (after, limit)), Mode.READ)

    async def mark_moved(self, tasks: Iterable[bytes]) -> None:
        """Record that these tasks have arrived: they are not sent again."""
        bindings = [(task,) for task in sorted(tasks)]
        await self._runner.run(lambda db: _run_many(db, _SQL["note_moved"], bindings), Mode.WRITE)

    async def count_moved(self) -> int:
        """Return how many tasks are recorded as arrived."""
        found: int = await self._runner.run(lambda db: query.value(db, _SQL["count_moved"]), Mode.READ)
        return found

    async def shared_tables(self) -> list[Table]:
        """Return the rows that belong to no task."""
        return await self._runner.run(lambda db: [_table(db, name, ()) for name in SHARED_TABLES], Mode.READ)

    async def letters(self, after: tuple[str, bytes], limit: int) -> Table:
        """Return the letters of redrives after an operation and task id, in order."""
        bindings = (*after, limit)
        return await self._runner.run(lambda db: _table(db, "operation_task", bindings), Mode.READ)

    async def operations(self) -> Table:
        """Return all operations. An operation that was still choosing or purging letters is stopped."""
        return await self._runner.run(lambda db: _table(db, "operation", (self._now(),)), Mode.READ)

    async def late_tables(self, *, finished: bool) -> list[Table]:
        """Return the rows of maps, and of tasks that wait for others.

        Finished items of maps that are not moved are counted among the deleted ones.

        Args:
            finished: Whether succeeded and cancelled tasks are moved too if no task waits for them.
        """

        def read(db: apsw.Connection) -> list[Table]:
            bindings: dict[str, tuple[bool, ...]] = {"map_deleted": (finished,)}
            return [_table(db, name, bindings.get(name, ())) for name in LATE_TABLES]

        return await self._runner.run(read, Mode.READ)

    async def finished_keys(self, after: tuple[str, str], limit: int) -> Table:
        """Return unexpired idempotency keys of tasks that are finished or deleted, in order."""
        bindings = (*after, self._now(), limit)
        return await self._runner.run(lambda db: _table(db, "finished_keys", bindings), Mode.READ)


def _destination(db: apsw.Connection) -> tuple[str, str] | None:
    if not query.value(db, _SQL["sealed"]):
        return None
    target_id, location = query.one(db, _SQL["destination"])
    return target_id, location


def _seal(db: apsw.Connection, now: float, target_id: str, location: str) -> None:
    destination = _destination(db)
    if destination is not None:
        if destination[0] != target_id:
            raise NotAcceptedError(
                f"a transfer of this file to {destination[1]} has begun, and this is another database",
                fix="name that one; if it is gone, `tidegate db move SOURCE TARGET --undo`, then move again",
                place=destination[1],
            )
        return
    _require_idle(db, now)
    if query.value(db, _SQL["enqueue_batch_task"]):
        raise StoreBusyError(
            "an enqueue of many tasks was made just now",
            fix="stop the clients that enqueue, then move again",
            place=db.filename,
        )
    db.execute(_SQL["seal"])
    db.execute(_SQL["note_seal"], (target_id, location, now))


def _unseal(db: apsw.Connection) -> None:
    if _destination(db) is not None:
        db.execute(_SQL["unseal"])


def _require_idle(db: apsw.Connection, now: float) -> None:
    workers = query.rows(db, _SQL["live_workers"], (now,))
    if workers:
        names = ", ".join(f"{name} (process {pid} on {host})" for name, host, pid in workers)
        raise NotAcceptedError(
            f"workers are alive at the source: {names}",
            fix="stop them (SIGTERM lets tasks end) and all clients that enqueue there, then move again",
            workers=len(workers),
        )
    running = query.value(db, _SQL["running"])
    if running:
        raise NotAcceptedError(
            f"the source has recorded {counted(running, 'task')} as running, and no worker is left there",
            fix="let `tidegate scheduler` run there until `tidegate status` shows none running",
            running=running,
        )


def _next_batch(db: apsw.Connection, after: bytes, finished: bool, limit: int) -> Batch | None:
    tasks = query.column(db, _SQL["next"], (after, finished, limit))
    if not tasks:
        return None
    array = (query.array(tasks),)
    return Batch(tasks, {name: _table(db, name, array) for name in (*TASK_TABLES, "key")})


def _table(db: apsw.Connection, name: str, bindings: Sequence[Any]) -> Table:
    # A cursor without rows has no column names.
    described = apsw.ext.query_info(db, _SQL[name]).description
    return Table(name, tuple(column for column, *_ in described), query.rows(db, _SQL[name], bindings))


def _run_many(db: apsw.Connection, statement: str, bindings: Sequence[Sequence[Any]]) -> None:
    db.executemany(statement, bindings)
