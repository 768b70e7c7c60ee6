"""The registry of task data has every table of the schema that holds data of tasks."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.task_tables import REMOVED, TASK_TABLES, UNFINISHED_TABLES
from tidegate.store.transfer.source import LATE_TABLES
from tidegate.store.transfer.source import TASK_TABLES as MOVED_TABLES

pytestmark = pytest.mark.anyio
SQL = Path(__file__).parents[2] / "src" / "tidegate" / "store"


async def columns_of(path: Path) -> dict[str, set[str]]:
    """Return the columns of each table of a new file."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with closing(apsw.Connection(str(path))) as db:
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        names = [name for (name,) in rows]
        return {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in names}


async def test_each_table_of_the_registry_has_its_key(tmp_path: Path) -> None:
    columns = await columns_of(tmp_path / "a.db")
    assert [table.name for table in TASK_TABLES if table.key not in columns[table.name]] == []
    marked = [columns[table.name] for table in TASK_TABLES if table.is_marked]
    assert all({"codec_tag", "data"} <= names for names in marked)


NOTHING_TO_FORGET = {
    "rollup": "its tenant is always empty; counters by tenant are in rollup_tenant",
}
"""Tables with a column of tasks or tenants that forgetting may leave alone, and why."""


async def test_each_table_with_a_task_or_a_tenant_is_in_the_registry_or_is_forgotten(tmp_path: Path) -> None:
    columns = await columns_of(tmp_path / "a.db")
    text = (SQL / "sqlite" / "sql" / "forget.sql").read_text()
    forgotten = set(re.findall(r"^(?:DELETE FROM|UPDATE) (\w+)", text, re.MULTILINE))
    registered = {table.name for table in TASK_TABLES} | set(UNFINISHED_TABLES)

    concerned = {name for name, found in columns.items() if {"task_id", "tenant"} & found}

    assert concerned - registered - forgotten == set(NOTHING_TO_FORGET)


async def test_a_move_takes_every_table_of_task_data_along() -> None:
    registered = {table.name for table in TASK_TABLES}
    assert set(MOVED_TABLES) | (set(LATE_TABLES) & registered) == registered | {"ready", "waiting"}
    assert set(UNFINISHED_TABLES) >= {"ready", "waiting"}


@pytest.mark.parametrize("back_end", ["sqlite", "postgres"])
def test_the_statement_that_marks_a_removal_writes_the_tag_that_readers_know(back_end: str) -> None:
    text = (SQL / back_end / "sql" / "task_tables.sql").read_text()
    assert f"codec_tag = '{REMOVED}'" in text
