"""The store's file is locked, deleted, moved or its disk is full: no task is lost or run twice."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import FAST, all_final, make_app, until
from tidegate import State, StoreError, StoreUnavailableError, Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio

_HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


@contextmanager
def locked_by_another_program(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the write lock from another process through Python's own sqlite3."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.communicate("\n", timeout=10)


async def test_a_store_locked_for_several_leases_re_runs_nothing(app: Tidegate, tmp_path: Path) -> None:
    ran: list[int] = []

    @app.task(name="t")
    async def body(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0.3)
        return number

    async with app.worker(), app.worker():
        handles = [await body.enqueue(number) for number in range(10)]
        await until(lambda: _truth(len(ran) == 10))
        with locked_by_another_program(tmp_path / "queue.db"):
            assert (await handles[0].status()).state is State.RUNNING
            await asyncio.sleep(3 * FAST.lease)
        rows = await all_final(app, [handle.id for handle in handles])
    assert sorted(ran) == list(range(10))
    assert {(row.state, row.run) for row in rows.values()} == {(State.SUCCEEDED, 1)}


async def test_a_worker_can_start_and_stop_while_the_store_is_locked(app: Tidegate, tmp_path: Path) -> None:
    @app.task(name="t")
    async def body() -> str:
        return "done"

    handle = await body.enqueue()
    worker = app.worker()
    with locked_by_another_program(tmp_path / "queue.db"):
        starting = asyncio.create_task(worker.__aenter__())
        await asyncio.sleep(2 * FAST.lease)
        assert not starting.done()
    await starting
    assert await handle.result(5) == "done"
    with locked_by_another_program(tmp_path / "queue.db"):
        begin = time.monotonic()
        await worker.stop()
        assert time.monotonic() - begin < 8 * FAST.stop_grace + 2
    assert await (await core_of(app).opened_store()).check_integrity() == []


async def _truth(value: bool) -> bool:
    return value


@pytest.mark.parametrize("what", ["file", "directory"])
async def test_a_deleted_database_is_logged_and_work_continues_when_it_is_back(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    app = make_app(directory)
    runs: list[int] = []

    @app.task(name="t")
    async def body(number: int) -> int:
        runs.append(number)
        await asyncio.sleep(0.1)
        return number

    async with app.worker():
        assert await (await body.enqueue(1)).result(5) == 1
        waiting = await body.using(delay=0.8).enqueue(2)
        aside = tmp_path / "aside"
        if what == "directory":
            shutil.move(directory, aside)
        else:
            aside.mkdir()
            for path in sorted(directory.glob("queue.db*")):
                shutil.move(path, aside / path.name)
        with pytest.raises(StoreError):
            await body.enqueue(3)
        await asyncio.sleep(2 * FAST.lease)
        assert not (directory / "queue.db").exists()
        assert len(caplog.records) < 100
        directory.mkdir(exist_ok=True)
        for path in sorted(aside.glob("queue.db*")):
            shutil.move(path, directory / path.name)
        assert await waiting.result(10) == 2
        assert await (await body.enqueue(4)).result(10) == 4
    assert sorted(runs) == [1, 2, 4]
    assert await core_of(app).store.check_integrity() == []
    await app.aclose()


async def test_a_full_disk_refuses_new_tasks_and_keeps_stored_ones(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task(name="t")
    async def body(text: str) -> int:
        return len(text)

    accepted = [(await body.enqueue("x" * 1000)).id]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    try:
        with pytest.raises(StoreUnavailableError):  # noqa: PT012 - the disk is full after some of them
            for _ in range(2_000):
                accepted.append((await body.enqueue("x" * 1000)).id)
        assert len(await core_of(app).store.read_tasks(accepted)) == len(accepted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    async with app.worker():
        accepted.append((await body.enqueue("after")).id)
        rows = await all_final(app, accepted)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert await core_of(app).store.check_integrity() == []
    await app.aclose()


async def test_a_disk_that_is_full_for_a_while_re_runs_nothing(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    runs: list[int] = []

    @app.task(name="t")
    async def body(number: int) -> str:
        runs.append(number)
        await asyncio.sleep(0.2)
        return "x" * 20_000

    async with app.worker():
        handles = [await body.enqueue(number) for number in range(8)]
        await until(lambda: _truth(len(runs) == 8))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        try:
            await asyncio.sleep(2 * FAST.lease)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        rows = await all_final(app, [handle.id for handle in handles])
    assert sorted(runs) == list(range(8))
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    await app.aclose()
