"""The tests' PostgreSQL as a store: one schema, made by the migrator, emptied for each test, used by the worker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from pgserver import Server
from tidegate.store.postgres.roles import role, roles_sql
from tidegate.store.postgres.store import PostgresStore

SCHEMA = "tidegate"

_numbers = itertools.count(1)


@cache
def prepared(server: Server, schema: str = SCHEMA) -> tuple[str, ...]:
    """Make a schema with its roles, once a server; return the tables that hold what tests store."""
    with server.connect() as admin:
        admin.execute(roles_sql(schema))
        url = f"{server.url(user=role(schema, 'migrator'))}?schema={schema}"
        with ThreadPoolExecutor() as elsewhere:  # the caller's loop may be running
            elsewhere.submit(asyncio.run, migrated(url)).result()
        found = admin.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename NOT IN ('migration', 'compatible')",
            [schema],
        )
        return tuple(name for (name,) in found)


async def migrated(url: str) -> list[str]:
    """Bring the schema of a URL up to date."""
    store = PostgresStore(url)
    try:
        return await store.migrate()
    finally:
        await store.close()


def emptied(server: Server, schema: str = SCHEMA) -> None:
    """Truncate the tables that hold what tests stored; those that are empty are left alone, which is quicker."""
    tables = [f'"{schema}".{name}' for name in prepared(server, schema)]
    looks = " ".join(f"IF EXISTS (SELECT FROM {name}) THEN TRUNCATE {name}; END IF;" for name in tables)
    server.kept_connection().execute(f"DO $$ BEGIN {looks} END $$")


@contextmanager
def fresh_database(server: Server) -> Iterator[str]:
    """A database of its own, where nothing was ever made; its name."""
    name = f"fresh_{next(_numbers)}"
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield name
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
