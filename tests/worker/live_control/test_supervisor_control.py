"""Orders to a worker while it runs: pauses, quiet, concurrency, reload."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_support import Service, came, notes, service

from support import EVERYDAY_ON_SQLITE, load_app, until
from tidegate import State
from tidegate.internals import core_of
from tidegate.limits.pauses import PauseKind
from tidegate.operations import workers
from tidegate.operations.workers import Change, wait_for_reports
from tidegate.store.controls import RESTARTED
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio
WORKER = ("worker", "supervised:app", "--name", "w1")


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_url: str) -> AsyncIterator[Any]:
    monkeypatch.setenv("OUT", str(tmp_path))
    module = load_app("supervised", tmp_path, monkeypatch, url=store_url)
    yield module
    await module.app.aclose()


@pytest.fixture
async def store(client: Any) -> Store:
    opened: Store = await core_of(client.app).opened_store()
    return opened


@contextlib.contextmanager
def running(directory: Path, url: str, *words: str, **env: str) -> Iterator[Service]:
    with service(directory, *WORKER, *words, TIDEGATE_DATABASE_URL=url, **env) as worker:
        yield worker


async def began(directory: Path, count: int) -> None:
    await came(lambda: len(notes(directory, "naps")) >= count, f"{count} naps have begun", within=40)


async def applied(store: Store, change: Change) -> list[str | None]:
    return list((await wait_for_reports(store, change, 40.0)).values())


@EVERYDAY_ON_SQLITE
async def test_a_paused_queue_starts_nothing_in_a_real_worker_also_after_its_restart(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    other = client.nap.using(queue="second")
    await store.pause(PauseKind.QUEUE, "default", by="ada", why="")
    held = await client.nap.enqueue(0.0)
    for _ in range(2):  # the second worker command is the restart
        with running(tmp_path, store_url, "--queues", "default,second"):
            await (await other.enqueue(0.0)).result(15)
            assert (await held.status()).state is State.READY
    with running(tmp_path, store_url):
        assert await store.resume(PauseKind.QUEUE, "default")
        assert await held.result(15) > 1


@EVERYDAY_ON_SQLITE
async def test_a_quiet_worker_finishes_what_it_runs_claims_nothing_and_stays_up(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    with running(tmp_path, store_url) as worker:
        long = await client.nap.enqueue(1.5)
        await began(tmp_path, 1)
        change = await workers.quiet(store, "w1", by="ada")
        assert await applied(store, change) == ["applied"]
        waiting = await client.nap.enqueue(0.0)
        await long.result(15)
        assert (await waiting.status()).state is State.READY
        assert worker.process.poll() is None
        assert await applied(store, await workers.resume(store, "w1", by="ada")) == ["applied"]
        await waiting.result(15)


@EVERYDAY_ON_SQLITE
async def test_a_quiet_worker_is_still_quiet_after_its_restart(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    with running(tmp_path, store_url):
        await (await client.nap.enqueue(0.0)).result(15)
        await applied(store, await workers.quiet(store, "w1", by="ada"))
    held = await client.nap.enqueue(0.0)
    with running(tmp_path, store_url) as worker:
        await came(lambda: "this worker is quiet, as ada asked" in worker.log(), "it says that it is quiet")
        await came(lambda: len(notes(tmp_path, "starts")) == 2, "its process has started")
        await applied(store, await workers.quiet(store, "w1", by="ada"))  # a second of claims has passed
        assert (await held.status()).run == 0
        await workers.resume(store, "w1", by="ada")
        await held.result(15)


async def test_the_concurrency_of_a_pool_changes_in_a_running_worker_and_is_shown(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    with running(tmp_path, store_url, CONCURRENCY="1"):
        naps = [await client.nap.enqueue(1.0) for _ in range(3)]
        await began(tmp_path, 1)
        change = await workers.set_concurrency(store, "default", 3, by="ada")
        assert await applied(store, change) == ["applied"]
        await began(tmp_path, 3)
        (pool,) = await workers.read_pools(store)
        assert (pool.slots, pool.concurrency, pool.set_by) == (3, 3, "ada")
        for nap in naps:
            await nap.result(15)
        back = await workers.set_concurrency(store, "default", None, by="ada")
        assert await applied(store, back) == ["applied"]
        (pool,) = await workers.read_pools(store)
        assert (pool.slots, pool.concurrency) == (1, None)


@EVERYDAY_ON_SQLITE
async def test_a_new_process_starts_with_the_concurrency_that_a_person_set(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    with running(tmp_path, store_url):
        await (await client.nap.enqueue(0.0)).result(15)
        await applied(store, await workers.set_concurrency(store, "default", 2, by="ada"))
    with running(tmp_path, store_url):
        await (await client.nap.enqueue(0.0)).result(15)

        async def slots_of_the_new_process() -> int | None:
            (pool,) = await workers.read_pools(store)
            return pool.slots if pool.processes == 1 else None

        # The first worker was killed: it counts until its lease has run out.
        assert await until(slots_of_the_new_process, what="only the new process is live") == 2


@EVERYDAY_ON_SQLITE
async def test_a_reload_from_elsewhere_restarts_with_the_new_code_and_reports_it(
    client: Any, store: Store, tmp_path: Path, store_url: str
) -> None:
    with running(tmp_path, store_url):
        assert (await (await client.release.enqueue()).result(15))[0] == "1"
        (tmp_path / "code").write_text("2")
        assert await applied(store, await workers.reload(store, by="ada")) == [RESTARTED]
        assert (await (await client.release.enqueue()).result(15))[0] == "2"
        (tmp_path / "code").write_text("broken")
        (answer,) = await applied(store, await workers.reload(store, "w1", by="ada"))
        assert answer is not None
        assert "the old code keeps running" in answer
        assert (await (await client.release.enqueue()).result(15))[0] == "2"


@EVERYDAY_ON_SQLITE
@pytest.mark.parametrize("overlap", [False, True])
async def test_with_overlap_the_new_process_starts_before_the_old_one_takes_no_more_tasks(
    client: Any, store: Store, tmp_path: Path, store_url: str, overlap: bool
) -> None:
    env = {"OVERLAP": "1"} if overlap else {}
    with running(tmp_path, store_url, **env) as worker:
        running_nap = await client.nap.enqueue(1.0)
        await began(tmp_path, 1)
        change = await workers.reload(store, by="ada")
        await came(lambda: "takes no more tasks" in worker.log(), "the old process drains", within=40)
        assert len(notes(tmp_path, "starts")) == (2 if overlap else 1)
        assert list((await wait_for_reports(store, change, 40.0)).values()) == [RESTARTED]
        assert await running_nap.result(15) > 1
        assert len(notes(tmp_path, "starts")) == 2
