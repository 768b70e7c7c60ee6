"""Settings of a database or a role must not change what the store promises."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from store_build import Build, SettableClock

from pgserver import Bouncer
from postgres_support import SCHEMA
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.store import PostgresStore

ISOLATION = "SHOW transaction_isolation"
SET_BY = "SELECT setting, source FROM pg_settings WHERE name = 'default_transaction_isolation'"
GATES = "SELECT 1 FROM /*schema*/gate FOR UPDATE"


async def isolation(store: PostgresStore) -> set[str]:
    """The isolation of single statements and of transactions."""
    database: Database = store._database
    plain = await database.autocommit(lambda db: db.value(ISOLATION))
    return {plain, await database.transact(lambda db: db.value(ISOLATION))}


async def test_an_isolation_level_set_for_the_database_does_not_apply(fresh_url: str) -> None:
    with psycopg.connect(fresh_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store = PostgresStore(fresh_url)
    assert await isolation(store) == {"read committed"}
    await store.close()


async def test_behind_a_pooler_the_isolation_level_of_the_role_applies(
    worker_url: str, bouncer: Bouncer
) -> None:
    store = PostgresStore(bouncer.url(user=role(SCHEMA, "worker")))
    assert await store._database.autocommit(lambda db: db.row(SET_BY)) == ("read committed", "user")
    await store.close()


async def test_a_process_that_stops_in_a_transaction_loses_its_locks_in_time(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.store.postgres.connecting._SILENCE", "200ms")
    frozen, living = PostgresStore(fresh_url), PostgresStore(fresh_url)
    await living.migrate()
    await living.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", Limits())])
    build = Build(living, SettableClock())
    task_id, worker = await build.one(upstream="openai"), await build.worker()
    has_gates = asyncio.Event()

    async def freezes(db: PostgresSession) -> None:
        await db.value(GATES)
        has_gates.set()
        await asyncio.Event().wait()

    silent = asyncio.create_task(frozen._database.transact(freezes))
    async with asyncio.timeout(20):
        await has_gates.wait()
        assert [task.fence.task_id for task in await build.claim(worker)] == [task_id]
    silent.cancel()
    await asyncio.gather(silent, return_exceptions=True)
    await asyncio.gather(frozen.close(), living.close())
