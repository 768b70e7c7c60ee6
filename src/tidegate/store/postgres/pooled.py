"""A connection through a pooler in transaction mode."""

from __future__ import annotations

from typing import Any

import asyncpg


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]
    """Sends a statement and its values in one message, and keeps only what is known of their types.

    A named prepared statement would stay behind on a server connection that the next transaction does not
    get. Without names asyncpg asks for the types each time, in a second round trip; an unnamed statement that
    is kept is parsed anew by each execution, with its types known.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unnamed: dict[str, Any] = {}

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        """Return all rows."""
        return await (await self._statement(query)).fetch(*args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        """Return the first row."""
        return await (await self._statement(query)).fetchrow(*args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """Return the first column of the first row."""
        return await (await self._statement(query)).fetchval(*args, **options)

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        """Return the status of a statement; several statements without values go as they are."""
        if not args:
            status_text: str = await super().execute(query, **options)
            return status_text
        statement = await self._statement(query)
        await statement.fetch(*args, **options)
        status: str = statement.get_statusmsg()
        return status

    async def _statement(self, query: str) -> Any:
        statement = self._unnamed.get(query)
        if statement is None:
            statement = self._unnamed[query] = await self.prepare(query, name="")
        return statement
