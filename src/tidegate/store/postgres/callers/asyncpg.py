"""A connection of asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.callers.caller import Answer, AsyncCaller, closed, no_transaction
from tidegate.store.postgres.statements import in_schema, load

_NUMBERED = load("joined")["numbered"]


class AsyncpgCaller(AsyncCaller):
    """`asyncpg.Connection`, or one out of a pool."""

    def demand_transaction(self) -> None:
        """Return if a transaction is open."""
        if self.conn.is_closed():
            raise closed()
        if not self.conn.is_in_transaction():
            raise no_transaction("async with conn.transaction():")

    async def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        holder, answer = await self.conn.fetchrow(in_schema(_NUMBERED, schema), *values)
        return holder, answer
