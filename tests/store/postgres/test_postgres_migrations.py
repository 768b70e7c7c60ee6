"""The schema: created only by the migrator, also by two processes at once, or by hand from the script."""

from __future__ import annotations

import asyncio
import subprocess

import asyncpg
import psycopg
import pytest
from store_build import Build, SettableClock, ids_of, succeeded

from pgserver import Server
from postgres_support import SCHEMA, fresh_database, migrated, prepared
from tidegate.domain.states import State
from tidegate.errors import ConfigError, SchemaError, StoreBusyError, StoreUnavailableError
from tidegate.store.common.migrate import Migration
from tidegate.store.postgres import schema
from tidegate.store.postgres.roles import role, roles_sql
from tidegate.store.postgres.store import PostgresStore

SOON = 20.0
KNOWN = schema.known_migrations()
NAMES = [migration.name for migration in KNOWN]

CATALOGUE = """
SELECT c.relname, c.relkind::text, c.reloptions, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
FROM pg_class AS c
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relnamespace = to_regnamespace(%s)
ORDER BY 1, 4
"""
FUNCTIONS = (
    "SELECT proname, pg_get_function_arguments(oid) FROM pg_proc WHERE pronamespace = to_regnamespace(%s)"
)


def catalogue(url: str, name: str) -> list[tuple[object, ...]]:
    """Return everything in a schema."""
    with psycopg.connect(url) as connection:
        return [*connection.execute(CATALOGUE, [name]), *sorted(connection.execute(FUNCTIONS, [name]))]


def test_migrations_are_numbered_without_gaps_and_state_what_they_lock() -> None:
    assert [migration.number for migration in KNOWN] == list(range(1, len(KNOWN) + 1))
    assert all(migration.sql.startswith(f"-- {migration.number:03d}: ") for migration in KNOWN)
    assert all("\n-- Locks: " in migration.sql for migration in KNOWN)


async def test_two_processes_can_upgrade_an_empty_database_at_once(fresh_url: str) -> None:
    one, other = PostgresStore(fresh_url), PostgresStore(fresh_url)
    applied = await asyncio.gather(one.migrate(), other.migrate())
    assert sorted(applied[0] + applied[1]) == NAMES
    await one.open()
    assert await one.migrate() == []
    await asyncio.gather(one.close(), other.close())


async def test_the_upgrade_script_creates_the_same_schema_as_an_upgrade(fresh_url: str) -> None:
    by_us, by_hand = (PostgresStore(f"{fresh_url}?schema={name}") for name in ("by_us", "by_hand"))
    await by_us.migrate()
    script = await by_hand.upgrade_script()
    done = subprocess.run(
        ["psql", "-v", "ON_ERROR_STOP=1", "-q", fresh_url], input=script, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert catalogue(fresh_url, "by_hand") == catalogue(fresh_url, "by_us") != []
    await by_hand.open()
    assert await by_hand.upgrade_script() == ""
    await asyncio.gather(by_us.close(), by_hand.close())


async def test_an_empty_database_is_refused_with_the_fix(fresh_url: str) -> None:
    store = PostgresStore(fresh_url)
    with pytest.raises(SchemaError, match="db upgrade"):
        await store.open()
    await store.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_is_not_utf8_is_refused(postgres: Server, encoding: str) -> None:
    with postgres.connect() as admin:
        admin.execute(f"CREATE DATABASE narrow ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        store = PostgresStore(postgres.url("narrow"))
        try:
            for refused in (store.migrate, store.upgrade_script, store.open):
                with pytest.raises(ConfigError, match=encoding):
                    await refused()
        finally:
            await store.close()
            admin.execute("DROP DATABASE narrow WITH (FORCE)")


LATER = (
    Migration(
        len(KNOWN) + 1,
        f"{len(KNOWN) + 1:03d}_colour",
        "ALTER TABLE /*schema*/running ADD COLUMN colour text NOT NULL DEFAULT '';",
    ),
    Migration(len(KNOWN) + 2, f"{len(KNOWN) + 2:03d}_paint", "CREATE TABLE /*schema*/paint (name text);"),
)
LATER_NAMES = [migration.name for migration in LATER]


def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as a version with two more migrations."""
    monkeypatch.setattr(schema, "known_migrations", lambda: (*KNOWN, *LATER))


async def test_a_schema_of_an_older_version_is_refused(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(fresh_url)
    await store.migrate()
    next_release(monkeypatch)
    with pytest.raises(SchemaError, match="older"):
        await store.open()
    await store.close()


OLD_ENQUEUE = """
SELECT answer
FROM tidegate.enqueue_1(
    NULL, NULL, $1, 'app:work', 'main', 1::smallint, '', '', 'json/1', '{"n":1}', 'same', $2, 3600, NULL, NULL,
    $3, NULL, NULL, NULL, NULL, NULL, NULL, NULL
)"""


async def test_an_upgrade_keeps_the_tasks_and_old_processes_continue(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(fresh_url)
    build = Build(store, SettableClock())
    ready, later, old_ready, again = (build.id() for _ in range(4))
    await store.migrate()
    old = await asyncpg.connect(fresh_url)
    assert await old.fetchval(OLD_ENQUEUE, ready, None, 0.0) == "stored"
    assert await old.fetchval(OLD_ENQUEUE, later, "k", 600.0) == "stored"

    next_release(monkeypatch)
    assert await store.migrate() == LATER_NAMES

    assert await old.fetchval(OLD_ENQUEUE, old_ready, None, 0.0) == "stored"
    assert await old.fetchval(OLD_ENQUEUE, again, "k", 0.0) == "held"
    await store.open()
    assert await build.states([ready, later, old_ready]) == {
        ready: State.READY, later: State.SCHEDULED, old_ready: State.READY
    }  # fmt: skip
    tasks = await build.claim(await build.worker(lease=600.0))
    assert sorted(ids_of(tasks)) == sorted([ready, old_ready])
    await build.done(*(succeeded(task.fence) for task in tasks))
    await build.sound()
    await old.close()
    await store.close()


async def test_the_upgrade_script_for_an_older_schema_has_only_missing_migrations(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(fresh_url)
    await store.migrate()
    next_release(monkeypatch)
    script = await store.upgrade_script()
    assert [name for name in (*NAMES, *LATER_NAMES) if f"'{name}'" in script] == LATER_NAMES
    with psycopg.connect(fresh_url, autocommit=True) as connection:
        connection.execute(script)
        with pytest.raises(psycopg.Error):  # run again by mistake: it is refused and changes nothing
            connection.execute(script)
        connection.execute("ROLLBACK")
    await store.open()
    assert await store.migrate() == []
    await store.close()


async def test_a_migration_does_not_block_others_while_it_waits_for_a_table(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(fresh_url)
    await store.migrate()
    next_release(monkeypatch)
    monkeypatch.setattr(schema, "_SQL", {**schema._SQL, "patience": "SET LOCAL lock_timeout = '100ms'"})
    at_work, behind = await asyncpg.connect(fresh_url), await asyncpg.connect(fresh_url)
    working = at_work.transaction()
    await working.start()
    await at_work.execute("UPDATE tidegate.running SET worker_id = worker_id")
    upgrading = asyncio.create_task(store.migrate())
    async with asyncio.timeout(SOON):
        while not await behind.fetchval(WAITS):
            await asyncio.sleep(0.01)
        await behind.execute("UPDATE tidegate.running SET worker_id = worker_id")
        assert not upgrading.done()
        await working.commit()
        assert await upgrading == LATER_NAMES
    await store.open()
    for connection in (at_work, behind):
        await connection.close()
    await store.close()


WAITS = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'tidegate.running'::regclass AND NOT granted)"


async def test_a_migration_has_a_longer_time_limit_than_other_calls(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Migration(len(KNOWN) + 1, "999_slow", "SELECT pg_sleep(1);")
    monkeypatch.setattr(schema, "known_migrations", lambda: (*KNOWN, slow))
    store = PostgresStore(fresh_url, busy_seconds=0.8)
    assert await store.migrate() == [*NAMES, "999_slow"]
    await store.close()


async def test_an_upgrade_waits_only_briefly_for_a_table(fresh_url: str) -> None:
    store = PostgresStore(fresh_url)
    statements = await store.upgrade_script()
    assert statements.count("SET LOCAL lock_timeout") == len(NAMES)
    await store.close()


async def test_an_upgrade_blocked_by_other_transactions_names_them_and_can_be_repeated(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(fresh_url)
    await store.migrate()
    later = Migration(len(NAMES) + 1, "later", "ALTER TABLE /*schema*/ready ADD COLUMN later integer;")
    migrations = (*schema.known_migrations(), later)
    monkeypatch.setattr(schema, "known_migrations", lambda: migrations)
    monkeypatch.setattr("tidegate.store.postgres.database._TRIES", 1)
    with psycopg.connect(fresh_url, application_name="report") as reader:
        reader.execute("SELECT 1 FROM tidegate.ready")
        with pytest.raises(
            StoreBusyError, match=rf"process {reader.info.backend_pid} \(report, role postgres"
        ):
            await store.migrate()
    assert await store.migrate() == ["later"]
    await store.close()


@pytest.mark.parametrize("kind", ["worker", "reader"])
async def test_only_the_migrator_may_change_tables(postgres: Server, kind: str) -> None:
    prepared(postgres)
    connection = await asyncpg.connect(postgres.url(user=role(SCHEMA, kind)))
    await connection.execute("SET default_transaction_read_only = off")
    for statement in (
        "CREATE TABLE tidegate.mine (a integer)", "ALTER TABLE tidegate.task ADD COLUMN mine integer",
        "DROP TABLE tidegate.task", "TRUNCATE tidegate.task", "DROP FUNCTION tidegate.identity()",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    await connection.close()


async def test_the_reader_can_read_and_cannot_write(postgres: Server, build: Build) -> None:
    task_id = await build.one()
    reader = PostgresStore(postgres.url(user=role(SCHEMA, "reader")))
    assert set(await reader.read_tasks([task_id])) == {task_id}
    with pytest.raises(StoreUnavailableError, match="read-only"):
        await reader.cancel([task_id])
    await reader.close()


@pytest.mark.parametrize("name", ["order", "public"])
async def test_the_roles_suffice_on_a_server_without_default_privileges(postgres: Server, name: str) -> None:
    with fresh_database(postgres) as database:
        with postgres.connect(database) as admin:
            admin.execute(roles_sql(name))
            mine = f"ALTER DEFAULT PRIVILEGES FOR ROLE {name}_migrator"
            admin.execute(f"{mine} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        urls = [
            f"{postgres.url(database, role(name, kind))}?schema={name}" for kind in ("migrator", "worker")
        ]
        assert await migrated(urls[0]) == NAMES
        store = PostgresStore(urls[1])
        await store.open()
        build = Build(store, SettableClock())
        task_id = await build.one(key="k")
        assert [task.fence.task_id for task in await build.claim(await build.worker())] == [task_id]
        await store.close()
    with postgres.connect() as admin:
        admin.execute(f"DROP ROLE {name}_migrator, {name}_worker, {name}_reader")


async def test_no_sequence_can_run_out(postgres: Server) -> None:
    """Ids of tasks are UUIDs. What is numbered has 64 bits: enough for 290,000 years of a million a second."""
    prepared(postgres)
    with postgres.connect() as admin:
        rows = admin.execute(
            "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = %s", [SCHEMA]
        ).fetchall()
    assert dict(rows) == dict.fromkeys(
        (
            "approval_number_seq",
            "doubt_id_seq",
            "event_wait_number_seq",
            "provider_job_number_seq",
            "step_number_seq",
        ),
        "bigint",
    )


async def test_granting_rights_again_is_harmless(postgres: Server) -> None:
    prepared(postgres)
    with postgres.connect() as admin:
        admin.execute(roles_sql(SCHEMA))
