"""The columns of statements have the names and the order of the rows that Python makes of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import asyncpg
import pytest

from pgserver import Server
from postgres_support import fresh_database, migrated
from tidegate.store.common.columns import StoredClaim, StoredDeadLetter, StoredOrphan, StoredWorker
from tidegate.store.common.lookups import StoredAttempt, StoredOtherRun, StoredOutcome, StoredTask
from tidegate.store.common.outcomes import AttemptRecord, EndedRunRow
from tidegate.store.postgres.statements import in_schema
from tidegate.store.postgres.statements import load as postgres_statements
from tidegate.store.sqlite.statements import load as sqlite_statements
from tidegate.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

ROWS: dict[tuple[str, str], Any] = {
    ("list_workers", "list"): StoredWorker,
    ("list_orphans", "orphans"): StoredOrphan,
    ("list_dead_letters", "page"): StoredDeadLetter,
    ("get_result", "result"): StoredOutcome,
    ("get_history", "attempts"): StoredAttempt,
    ("get_history", "other_runs"): StoredOtherRun,
    ("read_tasks", "read"): StoredTask,
}
CLAIM = {"sqlite": "load", "postgres": "take"}


@pytest.fixture
async def sqlite_columns(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    await store.close()
    with closing(apsw.Connection(str(tmp_path / "t.db"))) as db:

        def columns(operation: str, statement: str) -> tuple[str, ...]:
            described = apsw.ext.query_info(db, sqlite_statements(operation)[statement]).description
            return tuple(name for name, *_ in described)

        yield columns


async def test_the_columns_on_sqlite_are_the_fields_of_their_rows(sqlite_columns: Any) -> None:
    for names, row in ROWS.items():
        assert sqlite_columns(*names) == row._fields, names
    assert sqlite_columns("claim", CLAIM["sqlite"]) == StoredClaim._fields
    assert sqlite_columns("finish", "end") == EndedRunRow._fields
    assert sqlite_columns("finish", "was_attempt") == AttemptRecord._fields


async def test_the_columns_on_postgres_are_the_fields_of_their_rows(postgres: Server) -> None:
    with fresh_database(postgres) as name:
        await migrated(postgres.url(name))
        connection = await asyncpg.connect(postgres.url(name))
        try:

            async def columns(operation: str, statement: str) -> tuple[str, ...]:
                text = in_schema(postgres_statements(operation)[statement], "tidegate")
                return tuple(column.name for column in (await connection.prepare(text)).get_attributes())

            for names, row in ROWS.items():
                assert await columns(*names) == row._fields, names
            assert await columns("claim", CLAIM["postgres"]) == (*StoredClaim._fields, "now")
            assert await columns("finish", "end") == ("task_id", "now", *EndedRunRow._fields)
            assert (await columns("finish", "recorded"))[4:] == AttemptRecord._fields
        finally:
            await connection.close()
