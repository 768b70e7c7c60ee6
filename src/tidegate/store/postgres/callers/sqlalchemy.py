"""Connections and sessions of SQLAlchemy 2, over whatever driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import event, text

from tidegate.errors import OptionError
from tidegate.store.postgres.callers.caller import (
    Answer,
    AsyncCaller,
    SyncCaller,
    closed,
    no_transaction,
)
from tidegate.store.postgres.statements import in_schema, load

_NAMED = load("joined")["named"]


class ConnectionCaller(SyncCaller):
    """`sqlalchemy.Connection`."""

    def demand_transaction(self) -> None:
        """Return if the statement is part of a transaction, as it is unless the connection autocommits."""
        _demand_connection(self.conn)

    def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        return _answer(self.conn.execute(*_statement(schema, values)))

    def on_commit(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after each commit of this connection from now on."""
        _listen(self.conn, "commit", tell)


class SessionCaller(SyncCaller):
    """`sqlalchemy.orm.Session`."""

    @property
    def plain(self) -> Any:
        """The sync session itself, also out of a registry."""
        return self.conn() if callable(self.conn) else self.conn

    def demand_transaction(self) -> None:
        """Return if the session's connection does not autocommit."""
        _demand_connection(self.plain.connection())

    def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        return _answer(self.conn.execute(*_statement(schema, values)))

    def on_commit(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after each commit of this session from now on."""
        _listen(self.plain, "after_commit", tell)


class AsyncConnectionCaller(AsyncCaller):
    """`sqlalchemy.ext.asyncio.AsyncConnection`."""

    def demand_transaction(self) -> None:
        """Return if the statement is part of a transaction."""
        _demand_connection(self.conn.sync_connection)

    async def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        return _answer(await self.conn.execute(*_statement(schema, values)))

    def on_commit(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after each commit of this connection from now on."""
        _listen(self.conn.sync_connection, "commit", tell)


class AsyncSessionCaller(AsyncCaller):
    """`sqlalchemy.ext.asyncio.AsyncSession`."""

    @property
    def plain(self) -> Any:
        """The session itself, also out of a registry."""
        return self.conn() if callable(self.conn) else self.conn

    def demand_transaction(self) -> None:
        """Return: whether the session autocommits is seen when it has a connection, in `send`."""

    async def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        _demand_connection((await self.conn.connection()).sync_connection)
        return _answer(await self.conn.execute(*_statement(schema, values)))

    def on_commit(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after each commit of this session from now on."""
        _listen(self.plain.sync_session, "after_commit", tell)


def _demand_connection(connection: Any) -> None:
    if connection is None or connection.closed:
        raise closed()
    if connection.dialect.name != "postgresql":
        raise OptionError(
            f"conn= is a connection to {connection.dialect.name}", fix="pass one to the database of the tasks"
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction("use an engine without isolation_level='AUTOCOMMIT'")


def _statement(schema: str, values: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    return text(in_schema(_NAMED, schema)), {f"p{place}": value for place, value in enumerate(values, 1)}


def _answer(result: Any) -> Answer:
    holder, answer = result.one()
    return holder, answer


def _listen(target: Any, name: str, tell: Callable[[], None]) -> None:
    """Listen once for all: many enqueues of one session are one hint for each commit."""
    if getattr(target, _TOLD, None) is None:
        setattr(target, _TOLD, tell)
        event.listen(target, name, lambda *_: tell())


_TOLD = "_tidegate_told"
