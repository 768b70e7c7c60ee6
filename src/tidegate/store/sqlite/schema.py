"""The schema of a SQLite file: created for a new file, checked for an existing one, upgraded on request."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import apsw

from tidegate.errors import SchemaError
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
from tidegate.store.sqlite import query

FOLDER = Path(__file__).parent / "migrations"

APPLICATION_ID = 0x54494445
"""`TIDE`, in the file's header, so that `file` and Tidegate recognise it."""

_VERSIONS = """
CREATE TABLE IF NOT EXISTS migration (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at REAL NOT NULL
)"""


@cache
def known_migrations() -> tuple[Migration, ...]:
    """Return this version's migrations."""
    return read_migrations(FOLDER)


def is_empty(db: apsw.Connection) -> bool:
    """Whether the file has no table, like a new one."""
    return not query.value(db, "SELECT EXISTS (SELECT 1 FROM sqlite_schema)")


def require_ours(db: apsw.Connection) -> None:
    """Raise `SchemaError` unless the file is empty or its schema is of this version's generation.

    Raises:
        SchemaError: The schema is of another generation, or the file belongs to another program.
    """
    if not is_empty(db):
        _applied(db)


def count_newer_migrations(db: apsw.Connection) -> int:
    """Return by how many migrations the schema is newer than this version, which can still work with it.

    Raises:
        SchemaError: The schema is older, too new or of another generation, or the file is another program's.
    """
    applied = _applied(db)
    ahead = len(newer_migrations(known_migrations(), applied))
    require_compatible_schema(
        known_migrations(),
        applied,
        query.value(db, "SELECT since FROM compatible") if ahead else 0,
        place=db.filename,
    )
    return ahead


def check_usable(db: apsw.Connection, place: str) -> bool:
    """Return whether the file's schema is older than this version's. A newer schema must be compatible.

    Args:
        db: The file.
        place: The file of which `db` is a copy, for the message.

    Raises:
        SchemaError: The schema is too new or of another generation, or the file is another program's.
    """
    applied = _applied(db, place)
    if newer_migrations(known_migrations(), applied):
        require_compatible_schema(
            known_migrations(), applied, query.value(db, "SELECT since FROM compatible"), place=place
        )
        return False
    return bool(missing_migrations(known_migrations(), applied, place=place))


def check_same(db: apsw.Connection) -> None:
    """Raise `SchemaError` unless the file's schema is exactly this version's.

    Raises:
        SchemaError: The schema is older or newer, or the file is another program's.
    """
    require_same_schema(known_migrations(), _applied(db), place=db.filename)


def upgrade(db: apsw.Connection) -> list[str]:
    """Apply missing migrations in the current transaction; return their names.

    The caller holds the write lock. If two processes upgrade at the same time, the second finds no missing
    migration.

    Raises:
        SchemaError: The schema is newer, or the file is another program's.
    """
    applied = {} if is_empty(db) else _applied(db)
    todo = missing_migrations(known_migrations(), applied, place=db.filename)
    if not applied:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(_VERSIONS)
    for migration in todo:
        db.execute(migration.sql)
        db.execute(
            "INSERT INTO migration (number, name, applied_at) VALUES (?, ?, ?)",
            (migration.number, migration.name, time.time()),
        )
    return [migration.name for migration in todo]


def _applied(db: apsw.Connection, place: str = "") -> Applied:
    place = place or db.filename
    ours = query.value(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration'")
    if not ours:
        raise SchemaError(
            f"{place} is a database of another program",
            fix="give Tidegate a file of its own",
            place=place,
        )
    applied = dict(query.rows(db, "SELECT number, name FROM migration"))
    require_generation(known_migrations(), applied, place)
    return applied
