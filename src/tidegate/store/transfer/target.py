"""The PostgreSQL database that tasks are moved to. Each batch is stored as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from tidegate.errors import StoreError
from tidegate.store.common.statements import read_statements
from tidegate.store.common.text import storable
from tidegate.store.postgres import schema
from tidegate.store.postgres.address import SCHEMA, parse_address
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.errors import UNSTORABLE
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.transfer.rows import Batch, BatchResult, Table

_SQL = read_statements(Path(__file__).parent / "sql", "target")

_SECONDS = 120.0
"""Time limit of a batch: its payloads and streams can be large."""
_TRIES = 3

_NAME_TAKEN = "another task has its key or unique name at the target"

_IDS = frozenset(
    {
        "id",
        "task_id",
        "parent_id",
        "map_id",
        "event_id",
        "child_id",
        "callback_id",
        "cursor",
        "leader_id",
        "elected_id",
    }
)
"""Columns with 16 bytes in SQLite and a uuid in PostgreSQL."""
_FLAGS = frozenset({"unique_until_final"})
"""Columns with 0 or 1 in SQLite and a boolean in PostgreSQL."""


class Target:
    """A PostgreSQL database to move to.

    Args:
        url: `postgresql://…`, with a role that may write rows: the worker's is enough.
        clock: The store's clock, for tests; the server's by default.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None) -> None:
        address = parse_address(url)
        self._database = Database(address, clock=clock)
        self.location = self._database.location + ("" if address.schema == SCHEMA else f" ({address.schema})")

    async def open(self) -> str:
        """Check the schema; return the identity of the database.

        Raises:
            SchemaError: The schema is not this version's, or is missing.
        """
        await self._database.transact(schema.check_same, snapshot=True)
        target_id: str = await self._database.autocommit(lambda db: db.value(_SQL["identity"]))
        return target_id

    async def close(self) -> None:
        """Close all connections."""
        await self._database.close()

    async def import_batch(self, batch: Batch) -> BatchResult:
        """Store the missing tasks of a batch, with everything that belongs to them, in one transaction.

        A task that PostgreSQL cannot store is kept back; a batch with such a task is halved.

        Raises:
            StoreError: Tasks are missing afterwards.
        """
        try:
            batch_result = await self._import_batch(batch)
        except UNSTORABLE as error:
            if len(batch.tasks) == 1:
                reason = f"PostgreSQL cannot store it: {error}"
                return BatchResult(frozenset(), frozenset(), {batch.tasks[0]: reason})
            half = len(batch.tasks) // 2
            first, second = batch.of(batch.tasks[:half]), batch.of(batch.tasks[half:])
            return await self.import_batch(first) | await self.import_batch(second)
        if len(await self.there(batch_result.moved)) < len(batch_result.moved):
            raise StoreError("tasks that were stored at the target are missing there", fix="move again")
        return batch_result

    async def there(self, tasks: Iterable[bytes]) -> frozenset[bytes]:
        """Return the tasks that the target has, in any state."""
        return await self._database.autocommit(lambda db: _there(db, tasks))

    async def copy_finished_keys(self, keys: Table) -> None:
        """Store idempotency keys. A key that another task has at the target stays with that task.

        A key that PostgreSQL cannot store is left out: no client can use it there.
        """
        try:
            await self._database.autocommit(lambda db: db.run(_SQL["take_names"], *_names(keys), db.at))
        except UNSTORABLE:
            half = len(keys.rows) // 2
            if half:
                await self.copy_finished_keys(Table(keys.name, keys.columns, keys.rows[:half]))
                await self.copy_finished_keys(Table(keys.name, keys.columns, keys.rows[half:]))

    async def copy_shared_tables(self, shared_tables: Sequence[Table]) -> None:
        """Store the rows that belong to no task, unless the target has a row of the same name."""

        async def copy_shared_tables(db: PostgresSession) -> None:
            for table in shared_tables:
                await db.run_many(_SQL[table.name], _rows(table))

        await self._database.transact(copy_shared_tables)

    async def _import_batch(self, batch: Batch) -> BatchResult:
        for _ in range(_TRIES - 1):
            # A client that resends an enqueue may have stored one of these ids; the next try sees it.
            with suppress(asyncpg.UniqueViolationError):
                return await self._database.transact(lambda db: _import_batch(db, batch), seconds=_SECONDS)
        return await self._database.transact(lambda db: _import_batch(db, batch), seconds=_SECONDS)


async def _import_batch(db: PostgresSession, batch: Batch) -> BatchResult:
    there = await _there(db, batch.tasks)
    fresh = frozenset(batch.tasks) - there
    kept_back = await _take_names(db, batch.tables["key"].of(fresh), batch.unfinished())
    moved = fresh - kept_back
    for table in batch.tables.values():
        if table.name != "key":
            await db.copy(table.name, table.columns, _rows(table.of(moved)))
    return BatchResult(moved, there, dict.fromkeys(kept_back, _NAME_TAKEN))


async def _take_names(db: PostgresSession, names: Table, unfinished: frozenset[bytes]) -> frozenset[bytes]:
    """Take the names of tasks; return the unfinished tasks whose names another task has."""
    if not names.rows:
        return frozenset()
    kinds, tenants, texts, holders, *_ = columns = _names(names)
    await db.run(_SQL["take_names"], *columns, db.at)
    lost = await db.column(_SQL["lost_names"], kinds, tenants, texts, holders)
    kept_back = frozenset(task.bytes for task in lost) & unfinished
    if kept_back:
        await db.run(_SQL["give_names_back"], kinds, tenants, texts, _uuids(kept_back))
    return kept_back


async def _there(db: PostgresSession, tasks: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(task.bytes for task in await db.column(_SQL["there"], _uuids(tasks)))


def _uuids(tasks: Iterable[bytes]) -> list[UUID]:
    return [UUID(bytes=task) for task in tasks]


def _names(names: Table) -> list[list[Any]]:
    """Return the columns of the names as arrays."""
    return [list(column) for column in zip(*_rows(names), strict=True)] or [[] for _ in names.columns]


def _rows(table: Table) -> list[tuple[Any, ...]]:
    """Return rows with values for PostgreSQL."""
    converters = [_converter(column) for column in table.columns]
    return [
        tuple([convert(value) for convert, value in zip(converters, row, strict=True)]) for row in table.rows
    ]


def _converter(column: str) -> Callable[[Any], Any]:
    if column in _IDS:
        return _as_uuid
    return _as_flag if column in _FLAGS else _as_text


def _as_uuid(value: Any) -> Any:
    """Return the UUID of 16 bytes. A token's id is text and stays unchanged."""
    return UUID(bytes=value) if isinstance(value, bytes) else value


def _as_flag(value: Any) -> bool:
    return bool(value)


def _as_text(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value
