"""Numbered migrations: list them, and check whether this version can work with a database's schema.

Files are named like `001_foundation.sql` and never edited after a release. Each back end applies them in
order, each in one transaction with its row in the `migration` table.

The name of the first migration names the schema's generation. A database of another generation has other
tables under the same numbers. A database of another generation is recognised by that name and refused: no
migration leads from one generation to the next.

During a rolling deploy old processes start on a schema newer than theirs. The column `since` of the table
`compatible` has the lowest migration that a process must know. A migration that breaks older code raises this
number; other migrations do not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SchemaError

log = logging.getLogger("tidegate.store")

Applied = Mapping[int, str]
"""The names of a database's migrations, by number."""

_OLD_GENERATIONS = {"001_tasks": "Tidegate 0.1.0, or a development version soon after it"}
"""For each older generation, named by its first migration: which version made its databases."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    """From 1, without gaps."""
    name: str
    """The file's name without its ending: `001_foundation`."""
    sql: str


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations of a folder in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9]_*.sql"))
    return tuple(Migration(int(file.stem[:3]), file.stem, file.read_text(encoding="utf-8")) for file in files)


def require_generation(known: Sequence[Migration], applied: Applied, place: str) -> None:
    """Raise `SchemaError` if a database is of another generation. A database without migrations passes.

    Args:
        known: This version's migrations.
        applied: The database's migrations.
        place: Where the database is, for the message.

    Raises:
        SchemaError: The database is of another generation.
    """
    foreign = [name for each in known if (name := applied.get(each.number, each.name)) != each.name]
    if not foreign:
        return
    maker = _OLD_GENERATIONS.get(applied.get(1, ""))
    if maker is None:
        what = f"were made by a version of Tidegate with other migrations ({foreign[0]})"
        fix = "use the version that made them"
    else:
        what = f"were made by {maker}"
        fix = "finish or drop its tasks with the version that made it"
    raise SchemaError(
        f"the tables in {place} {what}; this version cannot read them, and has changed nothing",
        fix=f"{fix}, or start a new database",
        place=place,
        generation=foreign[0],
        code_version=known[-1].number,
    )


def missing_migrations(known: Sequence[Migration], applied: Applied, *, place: str) -> list[Migration]:
    """Return the migrations that a database still needs, in order.

    Raises:
        SchemaError: The database has migrations that this version does not know.
    """
    if newer_migrations(known, applied):
        raise _too_new(known, applied, place)
    return [migration for migration in known if migration.number not in applied]


def newer_migrations(known: Sequence[Migration], applied: Applied) -> list[int]:
    """Return the migrations of a database that this version does not know, in order."""
    return sorted(set(applied) - {migration.number for migration in known})


def require_compatible_schema(
    known: Sequence[Migration], applied: Applied, since: int, *, place: str
) -> None:
    """Raise `SchemaError` unless the schema is this version's, or newer and compatible.

    Args:
        known: This version's migrations.
        applied: The database's migrations.
        since: The lowest migration a process must know; only used if the schema is newer.
        place: Where the database is, for the message.

    Raises:
        SchemaError: The schema is older, or too new.
    """
    if newer_migrations(known, applied) and known[-1].number < since:
        raise _too_new(known, applied, place)
    if any(migration.number not in applied for migration in known):
        have = max(applied, default=0)
        raise SchemaError(
            f"the database's schema ({have:03d}) is older than this version of Tidegate needs"
            f" ({known[-1].number:03d})",
            fix="run `tidegate db upgrade`",
            place=place,
            database_version=have,
            code_version=known[-1].number,
        )


def require_same_schema(known: Sequence[Migration], applied: Applied, *, place: str) -> None:
    """Raise `SchemaError` unless the schema is exactly this version's.

    Raises:
        SchemaError: The schema is older or newer.
    """
    missing_migrations(known, applied, place=place)
    require_compatible_schema(known, applied, since=0, place=place)


def log_newer_schema(ahead: int, location: str) -> None:
    """Log that a schema is newer by `ahead` migrations; log nothing if `ahead` is 0."""
    if ahead:
        log.info(
            "the schema of %s is %d migration%s newer than this version of Tidegate, which can work with it",
            location,
            ahead,
            "" if ahead == 1 else "s",
        )


def _too_new(known: Sequence[Migration], applied: Applied, place: str) -> SchemaError:
    return SchemaError(
        f"the database's schema is newer ({max(applied):03d}) than this version of Tidegate knows"
        f" ({known[-1].number:03d})",
        fix="upgrade Tidegate: pip install -U tidegate (after that, `tidegate db upgrade` on the rest)",
        place=place,
        database_version=max(applied),
        code_version=known[-1].number,
    )
