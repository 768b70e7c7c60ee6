"""The SQLite file that tasks leave: sealed, read in batches, and told what has arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import apsw.ext

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
    "usage", "stream", "chunk",
)  # fmt: skip
"""The tables whose rows travel with their task; the names it holds come beside them."""
SHARED_TABLES = ("gate", "manifest", "token")
"""The tables whose rows travel whole."""


class Source:
    """A SQLite file to move from.

    Args:
        path: The database file; it must be there.
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
        """Let go of the file."""
        await self._store.close()

    async def require_idle(self) -> None:
        """Return if nothing is at work here; repeated by `seal`, which makes sure that it stays so.

        Raises:
            NotAcceptedError: A worker lives, or a task is running.
        """
        await self._runner.run(lambda db: _require_idle(db, self._now()), Mode.READ)

    async def seal(self, target_id: str, location: str) -> None:
        """Let nothing be claimed, enqueued or changed here from now on. Safe to repeat.

        Args:
            target_id: The target's identity.
            location: The target in words, without credentials.

        Raises:
            NotAcceptedError: A worker lives, a task is running, or the tasks are on their way elsewhere.
            StoreBusyError: Somebody enqueues.
        """
        if await self.destination() is None:
            while await self._store.release_batches():
                pass
        await self._runner.run(lambda db: _seal(db, self._now(), target_id, location), Mode.WRITE)

    async def destination(self) -> tuple[str, str] | None:
        """Return identity and place of the target that this file is sealed for; None if it is not sealed."""
        return await self._runner.run(_destination, Mode.READ)

    async def unseal(self) -> None:
        """Let work go on here. What has arrived at a target is forgotten."""
        await self._runner.run(_unseal, Mode.WRITE)

    async def states(self, *, finished: bool) -> Counter[str]:
        """Return how many tasks there are in each state that moves."""
        rows = await self._runner.run(lambda db: query.rows(db, _SQL["states"], (finished,)), Mode.READ)
        return Counter(dict(rows))

    async def next_batch(self, after: bytes, *, finished: bool, limit: int) -> Batch | None:
        """Return the next tasks by id that are not known to have arrived; None after the last."""
        return await self._runner.run(lambda db: _next_batch(db, after, finished, limit), Mode.READ)

    async def next_ids(self, after: bytes, limit: int) -> tuple[bytes, ...]:
        """Return the next ids of any tasks."""
        return await self._runner.run(lambda db: query.column(db, _SQL["any"], (after, limit)), Mode.READ)

    async def mark_moved(self, tasks: Iterable[bytes]) -> None:
        """Keep that these tasks have arrived: they are never sent again."""
        bindings = [(task,) for task in sorted(tasks)]
        await self._runner.run(lambda db: _run_many(db, _SQL["note_moved"], bindings), Mode.WRITE)

    async def count_moved(self) -> int:
        """Return how many tasks have arrived, by what was noted."""
        found: int = await self._runner.run(lambda db: query.value(db, _SQL["count_moved"]), Mode.READ)
        return found

    async def shared_tables(self) -> list[Table]:
        """Return what belongs to no task."""
        return await self._runner.run(lambda db: [_table(db, name, ()) for name in SHARED_TABLES], Mode.READ)

    async def finished_keys(self, after: tuple[str, str], limit: int) -> Table:
        """Return idempotency keys that still answer for tasks which are finished or gone, in order."""
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
                f"the tasks of this file are on their way to {destination[1]}, and this is another database",
                fix="name that one; if it is gone, `tidegate db move SOURCE TARGET --undo`, then move again",
                location=destination[1],
            )
        return
    _require_idle(db, now)
    if query.value(db, _SQL["enqueue_batch_task"]):
        raise StoreBusyError(
            "an enqueue of many tasks was made just now", fix="stop who enqueues, move again"
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
            fix="stop them (SIGTERM lets tasks end) and whatever enqueues there, then move again",
            workers=len(workers),
        )
    running = query.value(db, _SQL["running"])
    if running:
        raise NotAcceptedError(
            f"{running} tasks are running at the source by its word, and their worker is gone",
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
    # A cursor without rows does not tell its columns.
    described = apsw.ext.query_info(db, _SQL[name]).description
    return Table(name, tuple(column for column, *_ in described), query.rows(db, _SQL[name], bindings))


def _run_many(db: apsw.Connection, statement: str, bindings: Sequence[Sequence[Any]]) -> None:
    db.executemany(statement, bindings)
