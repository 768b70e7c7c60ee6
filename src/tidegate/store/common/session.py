"""The session through which shared operations run SQL statements.

Each back end has its own SQL. Files, statement names and the order of parameters are the same in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class Session(Protocol):
    """Runs the statements of one store call in its transaction.

    On SQLite the calls run on the store's own thread, so no `await` waits.
    """

    @property
    def at(self) -> float | None:
        """The value of the parameter `at` of statements: the current time.

        None: the statements use the server's clock.
        """

    async def now(self) -> float:
        """Return the current time of the store's clock, in seconds since the epoch."""

    def sql(self, operation: str) -> Mapping[str, str]:
        """Return this back end's statements of an operation, by name."""

    def id(self, task_id: str) -> Any | None:
        """Return a task id in its stored form; None if no task can have it."""

    def text(self, stored_id: Any) -> str:
        """Return a stored id as text."""

    def array(self, values: Iterable[Any]) -> Any:
        """Return stored ids as one parameter of a statement."""

    async def rows(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Return all rows."""

    async def records(self, statement: str, *values: Any) -> Sequence[Mapping[str, Any]]:
        """Return all rows, each with its columns by name."""

    async def row(self, statement: str, *values: Any) -> Sequence[Any] | None:
        """Return the first row; None if there is none."""

    async def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row; None if there is no row."""

    async def column(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the first column of all rows."""

    async def run(self, statement: str, *values: Any) -> int:
        """Run a statement; return how many rows it wrote."""

    async def run_each(
        self, statement: str, rows: Iterable[Sequence[Any]], *values: Any
    ) -> Sequence[Sequence[Any]]:
        """Run a statement for each of these rows; return all rows it returns.

        The columns of a row are the first parameters of the statement; `values` follow. On PostgreSQL this is
        one statement, which gets the columns as arrays.
        """
