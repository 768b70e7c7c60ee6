"""Numbered migrations: which there are, and whether a database's are this version's.

Files are named `001_tasks.sql`, never edited after release, and applied in order, each with its row in
the `migration` table in one transaction. What runs them belongs to each back end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    """From 1, without gaps."""
    name: str
    """The file's name without its ending: `001_tasks`."""
    sql: str


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations of a folder in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9]_*.sql"))
    return tuple(Migration(int(file.stem[:3]), file.stem, file.read_text(encoding="utf-8")) for file in files)


def missing(known: Sequence[Migration], applied: Collection[int]) -> list[Migration]:
    """Return the migrations that a database still needs, in order.

    Raises:
        SchemaError: It has some that this version does not know.
    """
    newer = sorted(set(applied) - {migration.number for migration in known})
    if newer:
        raise SchemaError(
            f"the database's schema is newer ({newer[-1]:03d}) than this version of Tidegate knows"
            f" ({known[-1].number:03d})",
            fix="upgrade Tidegate: pip install -U tidegate (after that, `tidegate db upgrade` on the rest)",
            database=newer[-1],
            code=known[-1].number,
        )
    return [migration for migration in known if migration.number not in applied]


def demand_current(known: Sequence[Migration], applied: Collection[int]) -> None:
    """Return if the schema is this version's.

    Raises:
        SchemaError: It is older or newer.
    """
    lacking = missing(known, applied)
    if lacking:
        have = max(applied, default=0)
        raise SchemaError(
            f"the database's schema ({have:03d}) is older than this version of Tidegate needs"
            f" ({known[-1].number:03d})",
            fix="run `tidegate db upgrade`",
            database=have,
            code=known[-1].number,
        )
