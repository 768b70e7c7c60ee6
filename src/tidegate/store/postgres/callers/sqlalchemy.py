"""Connections and sessions of SQLAlchemy 2, with any driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import event, text

from tidegate.errors import OptionError
from tidegate.store.postgres.callers.caller import Caller, closed, no_transaction


class ConnectionCaller(Caller):
    """`sqlalchemy.Connection`."""

    style = "named"
    blocks = True

    def require_transaction(self) -> None:
        """Raise `OptionError` if the connection autocommits."""
        _require_connection(self.conn)

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        return _rows(self.conn.execute(text(statement), _named(values)))

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        self.conn.execute(text(statement))

    def on_commit(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit of this connection from now on."""
        _listen(self.conn, "commit", notify)


class SessionCaller(Caller):
    """`sqlalchemy.orm.Session`."""

    style = "named"
    blocks = True

    @property
    def plain(self) -> Any:
        """The sync session itself, also from a registry."""
        return self.conn() if callable(self.conn) else self.conn

    def require_transaction(self) -> None:
        """Raise `OptionError` if the session's connection autocommits."""
        _require_connection(self.plain.connection())

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        return _rows(self.conn.execute(text(statement), _named(values)))

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        self.conn.execute(text(statement))

    def on_commit(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit of this session from now on."""
        _listen(self.plain, "after_commit", notify)


class AsyncConnectionCaller(Caller):
    """`sqlalchemy.ext.asyncio.AsyncConnection`."""

    style = "named"
    blocks = False

    def require_transaction(self) -> None:
        """Raise `OptionError` if the connection autocommits."""
        _require_connection(self.conn.sync_connection)

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        return _rows(await self.conn.execute(text(statement), _named(values)))

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        await self.conn.execute(text(statement))

    def on_commit(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit of this connection from now on."""
        _listen(self.conn.sync_connection, "commit", notify)


class AsyncSessionCaller(Caller):
    """`sqlalchemy.ext.asyncio.AsyncSession`."""

    style = "named"
    blocks = False

    @property
    def plain(self) -> Any:
        """The session itself, also from a registry."""
        return self.conn() if callable(self.conn) else self.conn

    def require_transaction(self) -> None:
        """Do nothing: `fetch` and `run` check for autocommit once the session has a connection."""

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        _require_connection((await self.conn.connection()).sync_connection)
        return _rows(await self.conn.execute(text(statement), _named(values)))

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        _require_connection((await self.conn.connection()).sync_connection)
        await self.conn.execute(text(statement))

    def on_commit(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each commit of this session from now on."""
        _listen(self.plain.sync_session, "after_commit", notify)


def _require_connection(connection: Any) -> None:
    if connection is None or connection.closed:
        raise closed()
    if connection.dialect.name != "postgresql":
        raise OptionError(
            f"conn= is a connection to {connection.dialect.name}",
            fix="pass one to the database of the tasks",
            option="conn",
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction("use an engine without isolation_level='AUTOCOMMIT'")


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return {f"p{place}": value for place, value in enumerate(values, 1)}


def _rows(result: Any) -> Sequence[Sequence[Any]]:
    rows: Sequence[Sequence[Any]] = result.all()
    return rows


def _listen(target: Any, name: str, notify: Callable[[], None]) -> None:
    """Register one listener only, so that many enqueues of a session send one hint per commit."""
    if getattr(target, _NOTIFIED_KEY, None) is None:
        setattr(target, _NOTIFIED_KEY, notify)
        event.listen(target, name, lambda *_: notify())


_NOTIFIED_KEY = "_tidegate_told"
