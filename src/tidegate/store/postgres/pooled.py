"""A connection through a pooler in transaction mode."""

from __future__ import annotations

from typing import Any

import asyncpg


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]
    """Sends a statement and its values in one message, and caches only their types.

    A named prepared statement would stay on a server connection that the next transaction may not get.
    Without names asyncpg asks for the types each time, in a second round trip. A cached unnamed statement is
    parsed again by each execution, but its types are known.
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
        """Run a statement, or several statements without values; return the status."""
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
