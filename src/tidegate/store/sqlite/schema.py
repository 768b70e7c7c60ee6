"""The schema of a SQLite file: made when the file is new, checked when it is not, upgraded on demand."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import apsw

from tidegate.errors import SchemaError
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
from tidegate.store.sqlite import query

FOLDER = Path(__file__).parent / "migrations"

APPLICATION_ID = 0x54494445
"""`TIDE`, in the file's header: so that `file` and we know it."""

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
    """Whether the file holds no table at all, as a new one does."""
    return not query.value(db, "SELECT EXISTS (SELECT 1 FROM sqlite_schema)")


def demand_ours(db: apsw.Connection) -> None:
    """Return if the file is empty, or holds a schema of this version's generation, of whatever version.

    Raises:
        SchemaError: It is of another generation, or another program's.
    """
    if not is_empty(db):
        _applied(db)


def count_newer_migrations(db: apsw.Connection) -> int:
    """Return how many migrations newer the file's schema is than this version, which can work with it.

    Raises:
        SchemaError: It is older, too new, of another generation, or another program's.
    """
    applied = _applied(db)
    ahead = len(newer_migrations(known_migrations(), applied))
    require_compatible_schema(
        known_migrations(), applied, query.value(db, "SELECT since FROM compatible") if ahead else 0
    )
    return ahead


def check_usable(db: apsw.Connection, place: str) -> bool:
    """Return whether the file's schema is older than this version's; a newer one must be compatible.

    Args:
        db: The file.
        place: What it is a copy of, as a person would find it.

    Raises:
        SchemaError: It is too new, of another generation, or another program's.
    """
    applied = _applied(db, place)
    if newer_migrations(known_migrations(), applied):
        require_compatible_schema(
            known_migrations(), applied, query.value(db, "SELECT since FROM compatible")
        )
        return False
    return bool(missing_migrations(known_migrations(), applied))


def check_same(db: apsw.Connection) -> None:
    """Return if the file's schema is exactly this version's.

    Raises:
        SchemaError: It is older, newer, or another program's.
    """
    require_same_schema(known_migrations(), _applied(db))


def upgrade(db: apsw.Connection) -> list[str]:
    """Apply what is missing inside the transaction under way; return the names.

    The caller holds the write lock, so of two that upgrade at once the second finds nothing to do.

    Raises:
        SchemaError: The schema is newer, or another program's.
    """
    applied = {} if is_empty(db) else _applied(db)
    todo = missing_migrations(known_migrations(), applied)
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
            path=place,
        )
    applied = dict(query.rows(db, "SELECT number, name FROM migration"))
    demand_generation(known_migrations(), applied, place)
    return applied
