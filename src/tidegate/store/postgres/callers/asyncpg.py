"""A connection of asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.callers.caller import Caller, closed, no_transaction


class AsyncpgCaller(Caller):
    """An `asyncpg.Connection`, also from a pool."""

    style = "numbered"
    blocks = False

    def require_transaction(self) -> None:
        """Raise `OptionError` unless a transaction is open."""
        if self.conn.is_closed():
            raise closed()
        if not self.conn.is_in_transaction():
            raise no_transaction("async with conn.transaction():")

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        rows: list[Sequence[Any]] = await self.conn.fetch(statement, *values)
        return rows

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        await self.conn.execute(statement)
