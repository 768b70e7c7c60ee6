"""Several workers on a PostgreSQL server with few connections: all stay alive and run tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from worker_support import service

from pgserver import NotHereError, Server, postgres_server
from postgres_support import SCHEMA, emptied
from support import all_final, load_app, until
from tidegate import State
from tidegate.internals import core_of
from tidegate.store.postgres.roles import role
from tidegate.store.worker_rows import NewWorker
from tidegate.worker.supervisor.connections import log_connections, open_supervising

WORKERS = 6
CONNECTIONS = 20


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    """A server with few connections."""
    try:
        with postgres_server(max_connections=str(CONNECTIONS)) as started:
            yield started
    except NotHereError as error:
        pytest.skip(str(error))


@pytest.fixture
def url(small: Server) -> str:
    """The URL of its store, which is empty."""
    emptied(small)
    return small.url(user=role(SCHEMA, "worker"))


@pytest.mark.slow
async def test_workers_with_the_default_connections_stay_alive_and_run_tasks(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    client = load_app("supervised", tmp_path, monkeypatch, url=f"{url}?connections=1&hints=off")
    with ExitStack() as running:
        for number in range(WORKERS):
            folder = tmp_path / str(number)
            folder.mkdir()
            words = ("worker", "supervised:app", "--name", f"w{number}")
            running.enter_context(service(folder, *words, TIDEGATE_DATABASE_URL=url))
        store = await core_of(client.app).opened_store()

        async def all_live() -> bool:
            return len(await store.list_workers()) == WORKERS

        await until(all_live, within=75.0, what="every worker lives")
        handles = [await client.nap.enqueue(0.1) for _ in range(100)]
        rows = await all_final(client.app, [handle.id for handle in handles])
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    await client.app.aclose()


@pytest.mark.parametrize(("processes", "level"), [(2, "INFO"), (6, "WARNING")])
async def test_a_worker_logs_how_many_connections_all_workers_may_open(
    url: str, caplog: pytest.LogCaptureFixture, processes: int, level: str
) -> None:
    caplog.set_level("INFO", "tidegate.worker")
    store = open_supervising(url)
    await log_connections(store, "mine", processes)
    await store.close()
    (record,) = [each for each in caplog.records if each.module == "connections"]  # other workers log too
    assert record.levelname == level
    needed = processes * 5 + 3
    assert (
        f"{processes} worker processes and 1 supervisors may open up to {needed} connections"
        in record.message
    )
    assert f"the server has {CONNECTIONS - 3} " in record.message


async def test_connections_of_other_live_workers_count(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidegate.worker")
    store = open_supervising(url)
    for number in range(3):
        await store.add_worker(
            NewWorker(str(uuid4()), "other", "p", f"host {number}", 1, ("default",), 4, 30.0)
        )
    await log_connections(store, "mine", 1)
    await store.close()
    assert "4 worker processes and 4 supervisors" in caplog.text


async def test_nothing_is_logged_about_connections_of_a_database_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "tidegate.worker")
    store = open_supervising(f"sqlite:///{tmp_path}/queue.db")
    await log_connections(store, "mine", 1)
    await store.close()
    assert caplog.records == []
