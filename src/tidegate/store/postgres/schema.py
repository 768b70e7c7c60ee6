"""The schema of a PostgreSQL database: its version, and the migrations to this version.

Only this module creates or changes tables. Each migration is one transaction under an advisory lock, so two
processes may upgrade at the same time. A migration waits only briefly for tables in use, and is then retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tidegate.errors import ConfigError, SchemaError, StoreBusyError
from tidegate.store.common.migrate import (
    Applied,
    Migration,
    missing_migrations,
    newer_migrations,
    read_migrations,
    require_compatible_schema,
    require_generation,
    require_same_schema,
)
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import in_schema, load

FOLDER = Path(__file__).parent / "migrations"
_SQL = load("migrate")

_MIGRATION_SECONDS = 3_600.0
"""Time limit of a migration. An index on a large table takes long; waits for locks have their own limit."""


@cache
def known_migrations() -> tuple[Migration, ...]:
    """Return this version's migrations."""
    return read_migrations(FOLDER)


async def count_newer_migrations(db: PostgresSession) -> int:
    """Return by how many migrations the schema is newer than this version, which can still work with it.

    Raises:
        SchemaError: The schema is older, too new, of another generation, or missing.
        ConfigError: The database's encoding is not UTF-8.
    """
    applied = await _require_schema(db)
    ahead = len(newer_migrations(known_migrations(), applied))
    since = await db.value(_SQL["since"]) if ahead else 0
    require_compatible_schema(known_migrations(), applied, since, place=db.location)
    return ahead


async def check_same(db: PostgresSession) -> None:
    """Raise `SchemaError` unless the database's schema is exactly this version's.

    Raises:
        SchemaError: The schema is older, newer, of another generation, or missing.
        ConfigError: The database's encoding is not UTF-8.
    """
    require_same_schema(known_migrations(), await _require_schema(db), place=db.location)


async def _require_schema(db: PostgresSession) -> Applied:
    """Return the migrations of a schema that must exist."""
    await _require_utf8(db)
    applied = await _applied(db)
    if not applied:
        raise SchemaError(
            f'the database has no tables of Tidegate in the schema "{db.schema}"',
            fix="run `tidegate db upgrade`; for other tables, name their schema in the URL: ?schema=…",
            schema=db.schema,
            place=db.location,
        )
    return applied


async def upgrade(database: Database) -> list[str]:
    """Apply missing migrations; return their names.

    Raises:
        SchemaError: The schema is newer, or of another generation.
        ConfigError: The database's encoding is not UTF-8.
        StoreBusyError: Other transactions used a table for too long; the remaining migrations were not
            applied.
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
    """Return the statements of `upgrade` for a person to run; empty if there are none.

    Raises:
        SchemaError: The schema is newer, or of another generation.
        ConfigError: The database's encoding is not UTF-8.
    """
    await _require_utf8(db)
    todo = missing_migrations(known_migrations(), await _applied(db), place=db.location)
    make = await _make_schema(db)
    return "\n".join([*make, *(_transaction(migration, db.schema) for migration in todo)])


async def _blocked_error(database: Database, error: StoreBusyError) -> StoreBusyError:
    """Return the error for a migration that could not lock a table; it names the transactions in the way."""
    holders = await database.autocommit(lambda db: db.value(_SQL["holders"], database.address.schema))
    if holders is None:
        return error
    return StoreBusyError(
        f"a table at {database.location} is in use by transactions that do not end: {holders};"
        " the migration was not applied",
        fix="end them, with pg_terminate_backend if necessary, and run `tidegate db upgrade` again",
        place=database.location,
    )


async def _require_utf8(db: PostgresSession) -> None:
    encoding = await db.value(_SQL["encoding"])
    if encoding != "UTF8":
        raise ConfigError(
            f"the database's encoding is {encoding}, which cannot store every text of a task",
            fix="create a database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            place=db.location,
        )


async def _apply_next(db: PostgresSession) -> str | None:
    await db.value(_SQL["lock"], db.schema)
    todo = missing_migrations(known_migrations(), await _applied(db), place=db.location)
    if not todo:
        return None
    make = await _make_schema(db)
    await db.script("\n".join([*make, *_statements(todo[0], db.schema)]))
    return todo[0].name


async def _make_schema(db: PostgresSession) -> list[str]:
    """Return the statement that creates the schema; no statement if an administrator has created it."""
    return [] if await db.value(_SQL["has_schema"], db.schema) else [f'CREATE SCHEMA "{db.schema}";']


async def _applied(db: PostgresSession) -> Applied:
    """Return the database's migrations by number; empty for a new database.

    Raises:
        SchemaError: The migrations are of another generation.
    """
    if await db.value(_SQL["is_there"], db.schema) is None:
        return {}
    applied = dict(await db.rows(_SQL["applied"]))
    require_generation(known_migrations(), applied, f'the schema "{db.schema}"')
    return applied


def _transaction(migration: Migration, schema: str) -> str:
    lock = _SQL["lock"].replace("$1", f"'{schema}'")
    return "\n".join(["BEGIN;", f"{lock};", *_statements(migration, schema), "COMMIT;", ""])


def _statements(migration: Migration, schema: str) -> Sequence[str]:
    begin = [_SQL["begin"]] if migration.number == 1 else []
    note = _SQL["note"].replace("$1", str(migration.number)).replace("$2", f"'{migration.name}'")
    return [in_schema(text, schema) for text in (_SQL["patience"] + ";", *begin, migration.sql, note + ";")]
