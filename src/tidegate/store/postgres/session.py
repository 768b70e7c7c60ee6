"""The session on PostgreSQL: runs statements on a connection, in the store's schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import asyncpg

from tidegate.store.common import ids
from tidegate.store.postgres.pooled import PooledConnection
from tidegate.store.postgres.statements import in_schema, load

_NOW = load("now")["now"]


@asynccontextmanager
async def commit_or_roll_back(transaction: Any) -> AsyncIterator[None]:
    """Commit the transaction at the end of a `with` block; roll it back if the block raises an error.

    If the block is cancelled, the transaction is left alone, because its connection is closed. On a
    connection that does not answer, a ROLLBACK would wait for ever. On a lost connection, the error of the
    ROLLBACK would hide the cancellation.
    """
    await transaction.start()
    try:
        yield
    except Exception:
        with suppress(Exception):  # a lost connection has rolled back by itself
            await transaction.rollback()
        raise
    await transaction.commit()


class PostgresSession:
    """Runs statements on a connection.

    Args:
        connection: The connection. No other work uses it until this work ends.
        schema: The schema of the tables.
        location: The server and database, without credentials, for errors.
        at: The time that a test has set, for the parameter `at` of statements; None: the server's clock.
    """

    __slots__ = ("_connection", "at", "location", "schema")

    def __init__(
        self, connection: asyncpg.Connection, schema: str, at: float | None, location: str = ""
    ) -> None:
        self._connection = connection
        self.schema = schema
        self.location = location
        self.at = at

    @property
    def keeps_plans(self) -> bool:
        """Whether the server plans a statement once for many runs; False through a pooler."""
        # Not isinstance: asyncpg makes it True for every connection.
        return type(self._connection) is not PooledConnection

    async def now(self) -> float:
        """Return the current time of the server's clock, in seconds since the epoch."""
        now: float = await self.value(_NOW, self.at)
        return now

    def sql(self, operation: str) -> Mapping[str, str]:
        """Return the statements of an operation by name, without the schema's name."""
        return load(operation)

    def id(self, task_id: str) -> str | None:
        """Return a task id in its usual form; None if no task can have it."""
        return ids.canonical_or_none(task_id)

    def text(self, stored_id: Any) -> str:
        """Return a stored id as text."""
        return str(stored_id)

    def array(self, values: Iterable[Any]) -> list[Any]:
        """Return stored ids as one parameter of a statement."""
        return list(values)

    async def records(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Return all rows, each with its columns by name."""
        return [dict(row) for row in await self.rows(statement, *values)]

    async def rows(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows."""
        found: list[Any] = await self._connection.fetch(in_schema(statement, self.schema), *values)
        return found

    async def row(self, statement: str, *values: Any) -> Any:
        """Return the first row; None if there is none."""
        return await self._connection.fetchrow(in_schema(statement, self.schema), *values)

    async def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row; None if there is no row."""
        return await self._connection.fetchval(in_schema(statement, self.schema), *values)

    async def column(self, statement: str, *values: Any) -> list[Any]:
        """Return the first column of all rows."""
        return [row[0] for row in await self.rows(statement, *values)]

    async def run(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it wrote."""
        status_text: str = await self._connection.execute(in_schema(statement, self.schema), *values)
        number = status_text.rpartition(" ")[2]
        return int(number) if number.isdigit() else 0

    async def run_each(self, statement: str, rows: Iterable[Sequence[Any]], *values: Any) -> list[Any]:
        """Run a statement once for all these rows, whose columns are its first parameters, as arrays."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        return await self.rows(statement, *columns, *values) if columns else []

    async def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each set of values, in few round trips."""
        await self._connection.executemany(in_schema(statement, self.schema), values)

    async def copy(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Append rows to a table by COPY."""
        await self._connection.copy_records_to_table(
            table, schema_name=self.schema, columns=columns, records=rows
        )

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Return a savepoint for an `async with` block.

        If the block raises an error, only it is rolled back.
        """
        return commit_or_roll_back(self._connection.transaction())

    async def script(self, text: str) -> None:
        """Run statements without values, as one message."""
        await self._connection.execute(text)
