"""Recognise the library of a caller's connection."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tidegate.errors import OptionError
from tidegate.store.postgres.callers.caller import Caller

_LIBRARIES = {
    ("asyncpg", "Connection"): "asyncpg:AsyncpgCaller",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg:AsyncpgCaller",
    ("psycopg", "Connection"): "psycopg:PsycopgCaller",
    ("psycopg", "AsyncConnection"): "psycopg:AsyncPsycopgCaller",
    ("sqlalchemy", "Connection"): "sqlalchemy:ConnectionCaller",
    ("sqlalchemy", "Session"): "sqlalchemy:SessionCaller",
    ("sqlalchemy", "scoped_session"): "sqlalchemy:SessionCaller",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy:AsyncConnectionCaller",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy:AsyncSessionCaller",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy:AsyncSessionCaller",
    ("django", "BaseDatabaseWrapper"): "django:DjangoCaller",
    ("django", "ConnectionProxy"): "django:DjangoCaller",
}
"""Callers by the top package and name of a type or of one of its base classes."""

_SUPPORTED = "an asyncpg or psycopg connection, a SQLAlchemy connection or session, or django.db.connection"


def recognise(conn: Any) -> Caller:
    """Return the `Caller` for a connection.

    Raises:
        OptionError: The connection's library is not supported.
    """
    for kind in type(conn).__mro__:
        known = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is not None:
            module, _, name = known.partition(":")
            caller: Caller = getattr(import_module(f"{__package__}.{module}"), name)(conn)
            return caller
    kind = type(conn)
    raise OptionError(
        f"conn= is a {kind.__module__}.{kind.__qualname__}",
        fix=f"pass {_SUPPORTED}",
        option="conn",
        value=conn,
    )
