"""After `forget` as the owner of the tables, no table file of the server has the bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.test_store_forget import CANARY, canary_tasks
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import fresh_database, migrated
from tidegate.operations.forget import forget
from tidegate.store.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio


def table_files_with(server: Server, database: str, text: str) -> list[str]:
    """Return the files of a database that have a text, after a checkpoint."""
    with server.connect() as admin:
        admin.execute("CHECKPOINT")
        (oid,) = admin.execute("SELECT oid FROM pg_database WHERE datname = %s", [database]).fetchone()
        (data,) = admin.execute("SHOW data_directory").fetchone()
    folder = Path(data) / "base" / str(oid)
    return sorted(file.name for file in folder.iterdir() if text.encode() in file.read_bytes())


async def test_the_bytes_are_in_no_table_file(postgres: Server) -> None:
    clock = SettableClock()
    with fresh_database(postgres) as name:
        await migrated(postgres.url(name))
        store = PostgresStore(postgres.url(name), clock=clock)
        build = Build(store, clock)
        await canary_tasks(build, CANARY)
        assert table_files_with(postgres, name, CANARY) != []

        report = await forget(store, tenant=CANARY)

        assert report.not_erased == ""
        assert table_files_with(postgres, name, CANARY) == []
        await store.close()


async def test_as_the_worker_role_it_reports_that_bytes_may_be_left(
    store: PostgresStore, build: Build
) -> None:
    (task_id, _) = await canary_tasks(build)
    report = await forget(store, task_id=task_id)
    assert "only the owner" in report.not_erased
