"""The session on SQLite. Statements run directly on the store's thread, so an `await` never waits."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from tidegate.store.common import ids
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

T = TypeVar("T")


class SqliteSession:
    """Runs the statements of one store call on a connection. All of them use the same current time.

    Args:
        link: The connection, inside the call's transaction.
        at: The current time for the statements, in seconds since the epoch.
    """

    __slots__ = ("at", "link")

    def __init__(self, link: apsw.Connection, at: float) -> None:
        self.link = link
        self.at = at

    async def now(self) -> float:
        """Return the current time of this session."""
        return self.at

    def sql(self, operation: str) -> Mapping[str, str]:
        """Return the statements of an operation by name."""
        return load(operation)

    def id(self, task_id: str) -> bytes | None:
        """Return the 16 bytes of a task id; None if no task can have it."""
        return ids.blob_or_none(task_id)

    def text(self, stored_id: bytes) -> str:
        """Return a stored id as text."""
        return ids.to_text(stored_id)

    def array(self, values: Iterable[bytes]) -> apsw.CArrayBinding:
        """Return stored ids as one parameter that a statement reads as the table `carray(?)`."""
        return query.array(tuple(values) or (b"",))  # an array may not be empty, and no task has an empty id

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return query.rows(self.link, statement, values)

    async def records(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Return all rows, each with its columns by name."""
        cursor = self.link.execute(statement, values)
        # Without a row, a cursor has no description.
        return [
            {name: value for (name, _), value in zip(cursor.get_description(), row, strict=True)}
            for row in cursor
        ]

    async def row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row; None if there is none."""
        return query.row(self.link, statement, values)

    async def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row; None if there is no row."""
        return query.value(self.link, statement, values)

    async def column(self, statement: str, *values: Any) -> tuple[Any, ...]:
        """Return the only column of all rows."""
        return query.column(self.link, statement, values)

    async def run(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it wrote."""
        before = self.link.total_changes()
        self.link.execute(statement, values)
        return self.link.total_changes() - before

    async def run_each(
        self, statement: str, rows: Iterable[Sequence[Any]], *values: Any
    ) -> list[tuple[Any, ...]]:
        """Run a statement for each of these rows, followed by `values`; return all rows it returns."""
        return [found for row in rows for found in self.link.execute(statement, (*row, *values))]


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run work on a `SqliteSession`; return its result. The work never waits, so no event loop is needed."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    work.close()
    raise AssertionError("work on a SQLite connection waited for something")
