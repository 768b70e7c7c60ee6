"""Embedded workers: blocked loops, lost leases, several in one process, one application over many loops."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
import time
import weakref
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from attack_support import OddStore

from support import FAST, all_final, app_on, make_app, until
from tidegate import Context, OptionError, Pool, State, StoreUnavailableError, Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


async def test_a_worker_whose_loop_was_blocked_beyond_the_stall_limit_works_again(tmp_path: Path) -> None:
    app = make_app(tmp_path, timings=dataclasses.replace(FAST, stall_limit=0.3))
    blocked = []

    @app.task(name="block")
    async def block() -> None:
        blocked.append(1)
        if len(blocked) == 1:
            time.sleep(0.3 + 2.5 * FAST.lease)

    @app.task(name="fine")
    async def fine() -> str:
        return "done"

    async with app.worker():
        handle = await block.enqueue()
        await until(lambda: _truth(blocked))
        assert await (await fine.enqueue()).result(8) == "done"
        rows = await all_final(app, [handle.id])
        assert rows[handle.id].state is State.SUCCEEDED
    await app.aclose()


async def _truth(value: Any) -> bool:
    return bool(value)


async def test_an_embedded_worker_that_lost_its_lease_restarts(app: Tidegate) -> None:
    @app.task(name="t")
    async def body() -> str:
        return "done"

    async with app.worker():
        assert await (await body.enqueue()).result(5) == "done"
        for worker in await core_of(app).store.list_workers():
            await core_of(app).store.retire_worker(
                worker.id, why="by the test", is_loss=True, only_if_expired=False
            )
        assert await (await body.enqueue()).result(8) == "done"
    assert await core_of(app).store.list_workers() == []


async def test_a_run_of_a_worker_that_lost_its_lease_is_stopped_and_fenced(app: Tidegate) -> None:
    starts, ends = [], []

    @app.task(name="t")
    async def body() -> str:
        starts.append(time.monotonic())
        await asyncio.sleep(1.0)
        ends.append(len(starts))
        return f"run {len(starts)}"

    async with app.worker():
        handle = await body.enqueue()
        await until(lambda: _truth(starts))
        for worker in await core_of(app).store.list_workers():
            await core_of(app).store.retire_worker(
                worker.id, why="by the test", is_loss=True, only_if_expired=False
            )
        assert await handle.result(8) == "run 2"
    assert len(starts) == 2
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert [run.outcome for run in runs] == ["retrying", "succeeded"]


async def test_two_workers_of_one_process_share_the_work_and_run_nothing_twice(app: Tidegate) -> None:
    ran: list[int] = []

    @app.task(name="t")
    async def body(number: int) -> None:
        ran.append(number)
        await asyncio.sleep(0)

    async with app.worker(pools=[Pool("a", concurrency=5)]), app.worker(pools=[Pool("b", concurrency=5)]):
        ids = await app.enqueue_many(body.prepare(number) for number in range(300))
        await all_final(app, ids)
    assert sorted(ran) == list(range(300))


async def test_an_embedded_worker_serves_every_pool_of_its_application_and_runs_the_hooks_once(
    tmp_path: Path,
) -> None:
    pools = [
        Pool(name, queues=[name], concurrency=2, poll_interval=0.05) for name in ("chat", "mail", "files")
    ]
    app = make_app(tmp_path, pools=pools)
    calls: list[str] = []
    started = asyncio.Event()
    is_open = ContextVar("is_open", default=False)

    @app.on_start
    async def start() -> None:
        calls.append("start")
        is_open.set(True)

    @app.on_stop
    async def stop() -> None:
        calls.append("stop")

    @app.task(name="t")
    async def body() -> bool:
        started.set()
        await asyncio.sleep(0.2)
        calls.append("end")
        return is_open.get()

    async with app.worker() as worker:
        handles = [await body.using(queue=pool.name).enqueue() for pool in pools]
        assert len(await core_of(app).store.list_workers()) == len(worker.ids) == 3
        assert [await handle.result(10) for handle in handles] == [True] * 3
        started.clear()
        await body.using(queue="files").enqueue()
        await started.wait()
    assert calls == ["start", "end", "end", "end", "end", "stop"]
    await app.aclose()


async def test_an_embedded_worker_serves_only_the_pools_it_was_given(tmp_path: Path) -> None:
    pools = [Pool(name, queues=[name], poll_interval=0.05) for name in ("chat", "mail")]
    app = make_app(tmp_path, pools=pools)

    @app.task(name="t")
    async def body() -> str:
        return "done"

    async with app.worker(pools=pools[1:]):
        left = await body.using(queue="chat").enqueue()
        assert await (await body.using(queue="mail").enqueue()).result(10) == "done"
        rows = await core_of(app).store.read_tasks([left.id])
    assert rows[left.id].state is State.READY
    with pytest.raises(OptionError, match="pools"):
        app.worker(pools=[])
    await app.aclose()


async def test_an_embedded_worker_logs_that_it_cannot_replace_its_process(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="t")
    async def body(ctx: Context) -> str:
        ctx.replace_process("a leak")
        return "done"

    async with app.worker():
        assert await (await body.enqueue()).result(10) == "done"
        assert await (await body.enqueue()).result(10) == "done"
    assert "which an embedded worker cannot do: asked by the task: a leak" in caplog.text


def test_one_application_serves_many_loops_one_after_the_other_and_keeps_none_of_them(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    @app.task(name="t")
    async def body(number: int) -> int:
        return number

    async def once(number: int) -> int:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with app.worker():
            handle = await body.enqueue(number)
            value: int = await handle.result(10)
            return value

    assert [asyncio.run(once(number)) for number in range(5)] == list(range(5))
    gc.collect()
    assert [loop for loop in loops if loop() is not None] == []
    assert [thread for thread in threading.enumerate() if thread.name == "tidegate-background"] == []
    app.close()


def test_many_threads_with_loops_of_their_own_share_one_application(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    results: list[int] = []

    @app.task(name="t")
    async def body(number: int) -> int:
        return number

    async def work(number: int) -> None:
        for step in range(10):
            handle = await body.enqueue(number * 10 + step)
            results.append(await handle.result(20))

    async def serve(over: threading.Event) -> None:
        async with app.worker():
            await asyncio.to_thread(over.wait)

    over = threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(serve(over)))
    server.start()
    try:
        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        over.set()
        server.join(20)
    assert sorted(results) == list(range(60))
    app.close()


async def test_outcomes_a_stopping_worker_could_not_write_run_again_uncharged(tmp_path: Path) -> None:
    store = OddStore(tmp_path / "queue.db")
    app = app_on(store, pools=[Pool(concurrency=4, poll_interval=0.05)], timings=FAST)
    started: list[int] = []

    async def away(method: Any, *args: Any) -> Any:
        raise StoreUnavailableError("away")

    @app.task(name="t")
    async def body() -> str:
        started.append(1)
        if len(started) == 1:
            await asyncio.sleep(30)
        return "done"

    worker = app.worker()
    await worker.__aenter__()
    handle = await body.enqueue()
    await until(lambda: _truth(started))
    store.around["finish"] = away
    await worker.stop(grace=0.0)
    del store.around["finish"]
    async with app.worker():
        assert await handle.result(10) == "done"
    row = await handle.status()
    assert (row.run, row.crashes, row.attempts) == (2, 0, 0)
    await app.aclose()


async def test_a_worker_may_be_entered_again_after_its_end(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="t")
    async def body() -> str:
        return "done"

    worker = app.worker()
    for _ in range(3):
        async with worker:
            assert await (await body.enqueue()).result(5) == "done"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
