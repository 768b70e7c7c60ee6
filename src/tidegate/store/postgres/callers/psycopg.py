"""A connection of psycopg 3, which begins a transaction by itself unless it is told to autocommit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.callers.caller import (
    Answer,
    AsyncCaller,
    Caller,
    SyncCaller,
    closed,
    no_transaction,
)
from tidegate.store.postgres.statements import in_schema, load

_FORMAT = load("joined")["format"]
_IDLE = 0
"""PQTRANS_IDLE: connected, in no transaction. Source: PostgreSQL manual, PQtransactionStatus."""


class _Psycopg(Caller):
    def demand_transaction(self) -> None:
        """Return if a transaction is open, or the statement opens one."""
        if self.conn.closed:
            raise closed()
        if self.conn.autocommit and self.conn.info.transaction_status == _IDLE:
            raise no_transaction("with conn.transaction():")


class PsycopgCaller(_Psycopg, SyncCaller):
    """`psycopg.Connection`."""

    def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        with self.conn.cursor(row_factory=_plain) as cursor:
            cursor.execute(in_schema(_FORMAT, schema), values)
            holder, answer = cursor.fetchone()
        return holder, answer


class AsyncPsycopgCaller(_Psycopg, AsyncCaller):
    """`psycopg.AsyncConnection`."""

    async def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        async with self.conn.cursor(row_factory=_plain) as cursor:
            await cursor.execute(in_schema(_FORMAT, schema), values)
            holder, answer = await cursor.fetchone()
        return holder, answer


def _plain(_: Any) -> Any:
    """Make rows tuples, whatever the caller's connection makes of them."""
    return tuple
