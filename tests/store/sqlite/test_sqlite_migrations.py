"""The schema: created in a new file, refused in another program's, upgraded on request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest
from sqlite_support import run_sql
from store_build import Build, SettableClock, ids_of

from tidegate.errors import SchemaError
from tidegate.store.common import migrate
from tidegate.store.common.migrate import Migration
from tidegate.store.sqlite import schema
from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.store import SqliteStore

NEWEST = len(schema.known_migrations())
LATER = Migration(
    NEWEST + 1, "999_colour", "ALTER TABLE task ADD COLUMN colour TEXT; CREATE TABLE paint (name TEXT)"
)


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the code with one more migration."""
    later = (*schema.known_migrations(), LATER)
    monkeypatch.setattr(schema, "known_migrations", lambda: later)


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    known = schema.known_migrations()
    assert [migration.number for migration in known] == list(range(1, len(known) + 1))
    assert all(migration.sql.startswith(f"-- {migration.number:03d}: ") for migration in known)


async def test_a_new_file_gets_the_schema_and_the_application_id(store: SqliteStore, path: Path) -> None:
    applied = await run_sql(store, "SELECT number, name FROM migration")
    assert applied == [(migration.number, migration.name) for migration in schema.known_migrations()]
    assert await run_sql(store, "PRAGMA application_id") == [(0x54494445,)]
    await store.close()
    assert path.read_bytes()[68:72] == b"TIDE"


async def test_an_empty_file_is_a_new_file(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = SqliteStore(path)
    await store.open()
    assert await store.check_integrity() == []
    await store.close()


async def test_many_processes_that_open_a_new_file_at_once_create_one_schema(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await run_sql(stores[0], "SELECT count(*) FROM migration") == [(len(schema.known_migrations()),)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_older_schema_is_refused_with_the_upgrade_command(
    store: SqliteStore, build: Build, path: Path, clock: SettableClock, next_release: None
) -> None:
    await store.close()
    later = SqliteStore(path, clock=clock)
    for call in (later.open, later.get_queue_stats, lambda: later.enqueue([build.new()])):
        with pytest.raises(SchemaError, match="tidegate db upgrade") as caught:
            await call()
        assert (caught.value.database_version, caught.value.code_version) == (NEWEST, NEWEST + 1)
    await later.close()


async def test_an_upgrade_keeps_the_tasks_and_runs_once(
    path: Path, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = SqliteStore(path, clock=clock)
    ids = await Build(old, clock).enqueue(3)
    await old.close()
    later = (*schema.known_migrations(), LATER)
    monkeypatch.setattr(schema, "known_migrations", lambda: later)
    stores = [SqliteStore(path, clock=clock) for _ in range(2)]
    applied = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(applied) == [[], ["999_colour"]]
    for store in stores:
        await store.open()
        assert await store.migrate() == []
    build = Build(stores[0], clock)
    assert ids_of(await build.claim(await build.worker())) == ids
    assert await run_sql(stores[0], "SELECT colour FROM task LIMIT 1") == [(None,)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_upgrade_that_fails_changes_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration(NEWEST + 1, "999_broken", "CREATE TABLE half (a TEXT); CREATE TABLE task (b TEXT)")
    monkeypatch.setattr(schema, "known_migrations", lambda: (*released, broken))
    released = migrate.read_migrations(schema.FOLDER)
    with pytest.raises(Exception, match="already exists"):
        await store.migrate()
    assert await run_sql(store, "SELECT name FROM sqlite_schema WHERE name = 'half'", Mode.BARE) == []
    assert await run_sql(store, "SELECT number FROM migration", Mode.BARE) == [
        (migration.number,) for migration in released
    ]


async def test_another_programs_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE task (id INTEGER PRIMARY KEY, title TEXT)")
    db.close()
    store = SqliteStore(path)
    for call in (store.open, store.migrate, store.get_queue_stats):
        with pytest.raises(SchemaError, match="another program"):
            await call()
    await store.close()
    db = apsw.Connection(str(path))
    assert [name for (name,) in db.execute("SELECT name FROM sqlite_schema")] == ["task"]
    db.close()


async def test_every_table_with_rows_per_task_is_without_rowid(store: SqliteStore) -> None:
    tables = await run_sql(store, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
    plain = {name for name, sql in tables if "WITHOUT ROWID" not in str(sql)}
    appended = {"death", "tally"}  # a key would cost more than it finds
    numbered = {
        "step",
        "doubt",
        "event_wait",
        "approval",
        "provider_job",
        "sqlite_sequence",
    }  # in the order in which they came
    assert plain == {"migration"} | appended | numbered
