"""C67: an old worker meets tasks of a newer release and leaves them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import all_final, make_app, until
from tidegate import State

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
    del new.functions["t3"]
    async with old.worker():
        assert await (await old_t1.enqueue()).result(10) == "old"
        rows = await new.store.read(ids)
        assert {(row.state, row.run) for row in rows.values()} == {(State.READY, 0)}
        async with new.worker():
            rows = await all_final(new, ids)
    assert {(row.state, row.run) for row in rows.values()} == {(State.SUCCEEDED, 1)}
    assert (await nobodys.status()).state is State.READY
    await nobodys.cancel()

    async def settled() -> bool:
        return (await nobodys.status()).state is State.CANCELLED

    await until(settled)
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
    del app.functions["unknown"]
    async with app.worker():
        assert await handle.result(5) == "found"
    await app.aclose()
