"""Which library a connection is of."""

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
"""By the top package and the name of a type, or of one it is derived from."""

_SUPPORTED = "an asyncpg or psycopg connection, a SQLAlchemy connection or session, or django.db.connection"


def recognise(conn: Any) -> Caller:
    """Return what speaks to a connection of the caller's.

    Raises:
        OptionError: It is of no library that is known here.
    """
    for kind in type(conn).__mro__:
        known = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is not None:
            module, _, name = known.partition(":")
            caller: Caller = getattr(import_module(f"{__package__}.{module}"), name)(conn)
            return caller
    kind = type(conn)
    raise OptionError(f"conn= is a {kind.__module__}.{kind.__qualname__}", fix=f"pass {_SUPPORTED}")
