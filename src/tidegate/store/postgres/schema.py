"""The schema of a PostgreSQL database: its version and the migrations to ours.

Nothing else of Tidegate makes or changes a table. Each migration is one transaction under an advisory lock,
so two may upgrade at once; it waits a short time only for tables in use, and is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tidegate.errors import ConfigError, SchemaError, StoreBusyError
from tidegate.store.common.migrate import (
    Applied,
    Migration,
    demand_generation,
    missing_migrations,
    newer_migrations,
    read_migrations,
    require_compatible_schema,
    require_same_schema,
)
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import in_schema, load

FOLDER = Path(__file__).parent / "migrations"
_SQL = load("migrate")

_MIGRATION_SECONDS = 3_600.0
"""An index of a large table takes its time; waiting for others' locks is limited in each migration."""


@cache
def known_migrations() -> tuple[Migration, ...]:
    """Return this version's migrations."""
    return read_migrations(FOLDER)


async def count_newer_migrations(db: PostgresSession) -> int:
    """Return how many migrations newer the database's schema is than this version, which can work with it.

    Raises:
        SchemaError: It is older, too new, of another generation, or not there.
        ConfigError: The database cannot hold every text.
    """
    applied = await _require_schema(db)
    ahead = len(newer_migrations(known_migrations(), applied))
    require_compatible_schema(known_migrations(), applied, await db.value(_SQL["since"]) if ahead else 0)
    return ahead


async def check_same(db: PostgresSession) -> None:
    """Return if the database's schema is exactly this version's.

    Raises:
        SchemaError: It is older, newer, of another generation, or not there.
        ConfigError: The database cannot hold every text.
    """
    require_same_schema(known_migrations(), await _require_schema(db))


async def _require_schema(db: PostgresSession) -> Applied:
    """Return the migrations of a schema that must be there."""
    await _require_utf8(db)
    applied = await _applied(db)
    if not applied:
        raise SchemaError(
            f'the database holds no tables of Tidegate in the schema "{db.schema}"',
            fix="run `tidegate db upgrade`; for other tables, name their schema in the URL: ?schema=…",
            schema=db.schema,
        )
    return applied


async def upgrade(database: Database) -> list[str]:
    """Apply what is missing; return the names.

    Raises:
        SchemaError: The schema is newer, or of another generation.
        ConfigError: The database cannot hold every text.
        StoreBusyError: Others are at work on a table for too long; those migrations are missing still.
    """
    await database.autocommit(_require_utf8)
    names: list[str] = []
    try:
        while (name := await database.transact(_apply_next, seconds=_MIGRATION_SECONDS)) is not None:
            names.append(name)
    except StoreBusyError as error:
        raise await _blocked_error(database, error) from error
    return names


async def script(db: PostgresSession) -> str:
    """Return the statements that `upgrade` would run, for a person to run; empty if there are none.

    Raises:
        SchemaError: The schema is newer, or of another generation.
        ConfigError: The database cannot hold every text.
    """
    await _require_utf8(db)
    todo = missing_migrations(known_migrations(), await _applied(db))
    make = await _make_schema(db)
    return "\n".join([*make, *(_transaction(migration, db.schema) for migration in todo)])


async def _blocked_error(database: Database, error: StoreBusyError) -> StoreBusyError:
    """Return the error of a migration that had no turn at a table, with those who had it."""
    holders = await database.autocommit(lambda db: db.value(_SQL["holders"], database.address.schema))
    if holders is None:
        return error
    return StoreBusyError(
        f"a table at {database.location} is in use by transactions that do not end: {holders};"
        " of this migration nothing was written",
        fix="end them, with pg_terminate_backend if need be, and run `tidegate db upgrade` again",
    )


async def _require_utf8(db: PostgresSession) -> None:
    encoding = await db.value(_SQL["encoding"])
    if encoding != "UTF8":
        raise ConfigError(
            f"the database's encoding is {encoding}, which has not every text that a task may hold",
            fix="make a database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


async def _apply_next(db: PostgresSession) -> str | None:
    await db.value(_SQL["lock"], db.schema)
    todo = missing_migrations(known_migrations(), await _applied(db))
    if not todo:
        return None
    make = await _make_schema(db)
    await db.script("\n".join([*make, *_statements(todo[0], db.schema)]))
    return todo[0].name


async def _make_schema(db: PostgresSession) -> list[str]:
    """Return the statement that makes the schema; none where an administrator has made it."""
    return [] if await db.value(_SQL["has_schema"], db.schema) else [f'CREATE SCHEMA "{db.schema}";']


async def _applied(db: PostgresSession) -> Applied:
    """Return the database's migrations by number: none where nothing was ever made.

    Raises:
        SchemaError: They are of another generation.
    """
    if await db.value(_SQL["is_there"], db.schema) is None:
        return {}
    applied = dict(await db.rows(_SQL["applied"]))
    demand_generation(known_migrations(), applied, f'the schema "{db.schema}"')
    return applied


def _transaction(migration: Migration, schema: str) -> str:
    lock = _SQL["lock"].replace("$1", f"'{schema}'")
    return "\n".join(["BEGIN;", f"{lock};", *_statements(migration, schema), "COMMIT;", ""])


def _statements(migration: Migration, schema: str) -> Sequence[str]:
    begin = [_SQL["begin"]] if migration.number == 1 else []
    note = _SQL["note"].replace("$1", str(migration.number)).replace("$2", f"'{migration.name}'")
    return [in_schema(text, schema) for text in (_SQL["patience"] + ";", *begin, migration.sql, note + ";")]
