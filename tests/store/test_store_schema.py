"""The schema of a new database: the same in both stores, and as documented."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from pgserver import Server
from postgres_support import fresh_database, migrated
from tidegate.store.postgres import schema as postgres_schema
from tidegate.store.sqlite import schema as sqlite_schema
from tidegate.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
RESERVED = {
    "task": {"user_key", "concurrency_key", "route", "parent_id", "map_id", "map_position"},
    "ready": {"user_key", "concurrency_key", "route"},
    "waiting": {"user_key", "concurrency_key", "route", "held_until_at", "held_by"},
    "running": {
        "user_key", "concurrency_key", "route", "parent_id", "map_id", "reserved_input_tokens",
        "reserved_output_tokens", "reserved_microdollars",
    },
    "permit": {"task_id", "run", "reserved_input_tokens", "reserved_output_tokens", "reserved_microdollars"},
    "archive": {"upstream"},
    "dead": {"upstream"},
    "attempt": {"upstream"},
    "usage": {"cost_microdollars"},
    "rollup": {"calls", "input_tokens", "output_tokens", "cost_microdollars"},
}  # fmt: skip
"""Reserved columns, which a later migration would have to fill row by row."""


async def columns_of_sqlite(path: Path) -> dict[str, set[str]]:
    """Return the columns of each table of a new file."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(apsw.Connection(str(path))) as db:
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        names = [name for (name,) in rows]
        return {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in names}


async def columns_of_postgres(server: Server) -> dict[str, set[str]]:
    """Return the columns of each table of a new database."""
    with fresh_database(server) as name:
        await migrated(server.url(name))
        with psycopg.connect(server.url(name)) as connection:
            found = connection.execute(
                "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns"
                " WHERE table_schema = 'tidegate' GROUP BY table_name"
            ).fetchall()
    return {table: set(columns) for table, columns in found}


async def test_both_stores_have_the_same_tables_and_columns(tmp_path: Path, postgres: Server) -> None:
    here, there = await columns_of_sqlite(tmp_path / "a.db"), await columns_of_postgres(postgres)
    assert here == there


async def test_the_tables_are_those_of_the_architecture_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    layout = page[page.index("### Layout") :].partition("\n### ")[0]
    rows = [row.split("|")[1] for row in layout.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(
        await columns_of_sqlite(tmp_path / "a.db")
    )


async def test_the_reserved_columns_exist(tmp_path: Path) -> None:
    columns = await columns_of_sqlite(tmp_path / "a.db")
    assert {table: needed - columns[table] for table, needed in RESERVED.items()} == {
        table: set() for table in RESERVED
    }


def test_both_stores_have_the_same_migrations_of_one_generation() -> None:
    names = [migration.name for migration in sqlite_schema.known_migrations()]
    assert names == [migration.name for migration in postgres_schema.known_migrations()]
    assert names[0] == "001_foundation"
