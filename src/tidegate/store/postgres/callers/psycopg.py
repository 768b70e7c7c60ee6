"""Connections of psycopg 3, which begin a transaction by themselves unless autocommit is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.store.postgres.callers.caller import Caller, closed, no_transaction

_IDLE = 0
"""PQTRANS_IDLE: connected, in no transaction. Source: PostgreSQL manual, PQtransactionStatus."""


class _Psycopg(Caller):
    style = "format"

    def require_transaction(self) -> None:
        """Raise `OptionError` unless a transaction is open or the statement opens one."""
        if self.conn.closed:
            raise closed()
        if self.conn.autocommit and self.conn.info.transaction_status == _IDLE:
            raise no_transaction("with conn.transaction():")


class PsycopgCaller(_Psycopg):
    """`psycopg.Connection`."""

    blocks = True

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        with self.conn.cursor(row_factory=_plain) as cursor:
            cursor.execute(statement, values)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        self.conn.execute(statement)


class AsyncPsycopgCaller(_Psycopg):
    """`psycopg.AsyncConnection`."""

    blocks = False

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        async with self.conn.cursor(row_factory=_plain) as cursor:
            await cursor.execute(statement, values)
            rows: Sequence[Sequence[Any]] = await cursor.fetchall()
            return rows

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        await self.conn.execute(statement)


def _plain(_: Any) -> Any:
    """Return rows as tuples, independent of the connection's own row factory."""
    return tuple
