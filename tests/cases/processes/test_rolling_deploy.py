"""During a rolling deploy an old worker leaves tasks of the newer release alone, and works on a newer schema."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pgserver import Server
from postgres_support import fresh_database
from support import all_final, load_app, make_app, until, upgraded_by_later_release, worker_process
from tidegate import State
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


async def test_an_old_worker_leaves_new_functions_to_the_new_one(tmp_path: Path) -> None:
    old, new = make_app(tmp_path), make_app(tmp_path)

    @old.task(name="t1")
    async def old_t1() -> str:
        return "old"

    @new.task(name="t1")
    async def new_t1() -> str:
        return "new"

    @new.task(name="t2")
    async def t2(number: int) -> int:
        return number

    @new.task(name="t3")
    async def t3() -> None: ...

    ids = await new.enqueue_many(t2.prepare(number) for number in range(100))
    nobodys = await t3.enqueue()
    del core_of(new).functions["t3"]
    async with old.worker():
        assert await (await old_t1.enqueue()).result(10) == "old"
        rows = await core_of(new).store.read_tasks(ids)
        assert {(row.state, row.run) for row in rows.values()} == {(State.READY, 0)}
        async with new.worker():
            rows = await all_final(new, ids)
    assert {(row.state, row.run) for row in rows.values()} == {(State.SUCCEEDED, 1)}
    assert (await nobodys.status()).state is State.READY
    await nobodys.cancel()

    async def finished() -> bool:
        return (await nobodys.status()).state is State.CANCELLED

    await until(finished)
    await old.aclose()
    await new.aclose()


async def test_a_task_behind_thousands_of_unknown_ones_is_found_at_once(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task(name="unknown")
    async def unknown() -> None: ...

    @app.task(name="zzz")
    async def known() -> str:
        return "found"

    await app.enqueue_many(unknown.prepare() for _ in range(5_000))
    handle = await known.enqueue()
    del core_of(app).functions["unknown"]
    async with app.worker():
        assert await handle.result(5) == "found"
    await app.aclose()


@pytest.mark.parametrize("back_end", ["sqlite", "postgres"])
async def test_an_old_supervisor_replaces_its_process_after_the_schema_was_upgraded_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, back_end: str
) -> None:
    if back_end == "sqlite":
        await old_supervisor_works_on(tmp_path, monkeypatch, f"sqlite:///{tmp_path}/queue.db")
        return
    server: Server = request.getfixturevalue("postgres")
    with fresh_database(server) as name:
        await old_supervisor_works_on(tmp_path, monkeypatch, server.url(name))


async def old_supervisor_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    bodies = load_app("bodies", tmp_path, monkeypatch, url=url)
    await core_of(bodies.app).store.migrate()
    with worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url) as worker:
        await (await bodies.nap.enqueue(0.0)).result(20)
        adds = "ALTER TABLE /*schema*/task ADD COLUMN colour text;"
        assert await upgraded_by_later_release(core_of(bodies.app).store, monkeypatch, adds)

        (old,) = worker.children()
        os.kill(old, signal.SIGKILL)
        handle = await bodies.nap.enqueue(0.0)
        await handle.result(20)
        assert old not in worker.children()
        assert "1 migration newer than this version" in worker.log()
    await bodies.app.aclose()
