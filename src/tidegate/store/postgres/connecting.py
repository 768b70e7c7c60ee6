"""Making one connection and ending it: what holds for each, whatever it is used for."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any, TypeAlias

import asyncpg

from tidegate.store.postgres.keepalive import keep_alive
from tidegate.store.postgres.pooled import PooledConnection
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.wrap import late

_SETTLE = load("connect")["settle"]

CONNECT_SECONDS = 10.0
_SILENCE = "15s"
_FAREWELL_SECONDS = 5.0
_STATEMENTS = 200
"""Prepared statements kept on a direct connection."""

Link: TypeAlias = Any
"""An `asyncpg.Connection`; asyncpg brings no types."""


async def connect(dsn: str, *, pooler: bool) -> Link:
    """Make a connection.

    Args:
        dsn: Where to.
        pooler: Whether a pooler in transaction mode is in between.

    Raises:
        StoreUnavailableError: It took too long.
        asyncpg.PostgresError, OSError: It was refused.
    """
    try:
        link = await asyncpg.connect(
            dsn,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0 if pooler else _STATEMENTS,
            connection_class=PooledConnection if pooler else asyncpg.Connection,
            server_settings={"application_name": "tidegate"},
        )
    except TimeoutError as error:
        raise late("the database", CONNECT_SECONDS) from error
    keep_alive(link)
    return link


async def settle(link: Link) -> None:
    """Set what holds for each of our sessions; not through a pooler."""
    await link.execute(_SETTLE, _SILENCE, timeout=CONNECT_SECONDS)


async def is_pooled(link: Link) -> bool:
    """Whether something between us and the server hands server connections out by turns.

    A pooler makes up the process id that it greets with.
    """
    pid: int = await link.fetchval("SELECT pg_backend_pid()")
    return bool(pid != link.get_server_pid())


async def finds_pooler(dsn: str) -> bool:
    """Make a connection to find out whether there is a pooler in between."""
    probe = await connect(dsn, pooler=True)
    try:
        return await is_pooled(probe)
    finally:
        await part(probe)


async def part(link: Link) -> None:
    """Close a connection in an orderly way; at once where that fails or takes too long.

    A cancel closes it at once too: the loop may be about to end.
    """
    try:
        await link.close(timeout=_FAREWELL_SECONDS)
    except BaseException as error:
        link.terminate()
        if not isinstance(error, Exception):
            raise


def sever(link: Link) -> None:
    """End a connection at once, also one whose loop is closed: the server ends its session."""
    transport = getattr(link, "_transport", None)
    with suppress(Exception):  # a closed loop refuses most of it
        link.terminate()
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is not None:
        with suppress(Exception):  # terminate() has closed it
            found.shutdown(socket.SHUT_RDWR)
