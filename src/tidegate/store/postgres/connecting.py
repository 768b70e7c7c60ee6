"""Open and close one connection, with the settings that every connection has."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, TypeAlias

import asyncpg

from tidegate.store.postgres.errors import late
from tidegate.store.postgres.keepalive import keep_alive
from tidegate.store.postgres.pooled import PooledConnection
from tidegate.store.postgres.statements import load

_CONFIGURE = load("connect")["configure"]

CONNECT_SECONDS = 10.0
_SILENCE = "15s"
_FAREWELL_SECONDS = 5.0
_STATEMENTS = 200
"""Number of prepared statements cached per direct connection."""

GENERIC_PLANS = (
    "DISCARD PLANS; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off"
)
_CUSTOM_PLANS = "DISCARD PLANS; RESET plan_cache_mode; RESET enable_seqscan; RESET jit"
"""Both statements discard plans of the other kind. Without that, a change of settings would keep them."""

Connection: TypeAlias = Any
"""An `asyncpg.Connection`; asyncpg has no types."""


async def connect(dsn: str, *, pooler: bool) -> Connection:
    """Open a connection.

    Args:
        dsn: The server, database and credentials.
        pooler: Whether a pooler in transaction mode is in between.

    Raises:
        StoreUnavailableError: The connection took too long. asyncpg.PostgresError, OSError: The connection
            was refused.
    """
    try:
        connection = await asyncpg.connect(
            dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if pooler else _STATEMENTS,
            connection_class=PooledConnection if pooler else asyncpg.Connection,
            server_settings={"application_name": "tidegate"},
        )
    except TimeoutError as error:
        raise late("the database", CONNECT_SECONDS) from error
    keep_alive(connection)
    return connection


async def configure(connection: Connection) -> None:
    """Set the settings of every session. Do not call it for connections through a pooler."""
    await connection.execute(_CONFIGURE, _SILENCE, timeout=CONNECT_SECONDS)


async def switch_plans(connection: Connection, *, generic: bool) -> None:
    """Let the server plan each statement once for all values, or let it plan again when it wants to."""
    await connection.execute(GENERIC_PLANS if generic else _CUSTOM_PLANS)


async def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler between this process and the server shares server connections.

    A pooler sends a made-up process id at the start of the session.
    """
    pid: int = await connection.fetchval("SELECT pg_backend_pid()")
    return bool(pid != connection.get_server_pid())


async def finds_pooler(dsn: str) -> bool:
    """Open a connection to find out whether there is a pooler in between."""
    probe = await connect(dsn, pooler=True)
    try:
        return await is_pooled(probe)
    finally:
        await close_quietly(probe)


async def close_quietly(connection: Connection) -> None:
    """Close a connection in an orderly way, or abruptly if that fails or takes too long.

    The connection is also closed abruptly if the caller is cancelled, because the event loop may be about to
    end.
    """
    try:
        await connection.close(timeout=_FAREWELL_SECONDS)
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise


def disconnect(connection: Connection) -> None:
    """Close a connection abruptly, even if its event loop is closed. The server then ends the session."""
    transport = getattr(connection, "_transport", None)
    with suppress(Exception):  # a closed loop refuses most of these calls
        connection.terminate()
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is not None:
        with suppress(Exception):  # terminate() has closed it
            found.shutdown(socket.SHUT_RDWR)
