"""The worker's loops go on after unexpected errors; else a worker would look alive and do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attack_support import OddStore

from support import FAST, app_on, until
from tidegate import Context, Pool, TaskCancelledError, Tidegate
from tidegate.errors import SchemaError

pytestmark = pytest.mark.anyio
UNFORESEEN = [
    SchemaError("the schema was changed under us"),
    RuntimeError("a fault of ours"),
    AssertionError(),
]


@pytest.fixture
async def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Tidegate, OddStore]]:
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    store = OddStore(tmp_path / "queue.db")
    app = app_on(store, pools=[Pool(concurrency=10, poll_interval=0.05)], timings=FAST)
    yield app, store
    await app.aclose()


@pytest.mark.parametrize("error", UNFORESEEN, ids=repr)
@pytest.mark.parametrize("method", ["claim", "finish", "save_progress", "extend_leases", "find_lost_claims"])
async def test_a_worker_continues_after_an_unexpected_error(
    odd: tuple[Tidegate, OddStore], method: str, error: Exception
) -> None:
    app, store = odd

    @app.task(name="t")
    async def body(ctx: Context) -> str:
        ctx.progress(1)
        await asyncio.sleep(0.1)
        return "done"

    async with app.worker():
        store.fail_once(method, error)
        if method == "find_lost_claims":
            store.fail_once("claim", RuntimeError("so that claims are in doubt"))

        async def met() -> bool:
            return method not in store.around

        first = await body.enqueue()
        await until(met)
        assert await first.result(5) == "done"
        await asyncio.sleep(1.5 * FAST.lease if method == "extend_leases" else 0)
        assert await (await body.enqueue()).result(5) == "done"


async def test_cancel_requests_are_seen_after_an_unexpected_error(odd: tuple[Tidegate, OddStore]) -> None:
    app, store = odd
    started = asyncio.Event()

    @app.task(name="t")
    async def body() -> None:
        started.set()
        await asyncio.sleep(30)

    async with app.worker():
        store.fail_once("list_cancel_requests", RuntimeError("a fault of ours"))
        handle = await body.enqueue()
        await started.wait()

        async def met() -> bool:
            return "list_cancel_requests" not in store.around

        await until(met)
        await handle.cancel()
        with pytest.raises(TaskCancelledError):
            await handle.result(5)


async def test_a_waiter_for_a_result_gets_an_unexpected_store_error(
    odd: tuple[Tidegate, OddStore],
) -> None:
    app, store = odd

    @app.task(name="t")
    async def body() -> None: ...

    handle = await body.enqueue()
    store.fail_once("read_stream_heads", RuntimeError("a fault of ours"))
    with pytest.raises(RuntimeError, match="a fault of ours"):
        async with asyncio.timeout(5):
            await handle.result()
