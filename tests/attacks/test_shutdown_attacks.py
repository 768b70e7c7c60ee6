"""A shutdown never hangs, leaks a thread or keeps a lease, no matter what functions and hooks do."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support import FAST, all_final, until
from tidegate import NO_LIMIT, Context, State, Tidegate
from tidegate.domain.states import FINAL
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


async def state_of(handle: Any) -> State:
    state: State = (await handle.status()).state
    return state


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_task_that_ignores_its_cancel_does_not_block_the_shutdown(app: Tidegate, kind: str) -> None:
    over, reported = threading.Event(), asyncio.Event()

    @app.task(name="coroutine", timeout=NO_LIMIT)
    async def stubborn(ctx: Context) -> None:
        while not over.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                reported.set()

    @app.task(name="thread", timeout=NO_LIMIT)
    def deaf(ctx: Context) -> None:
        over.wait(20)

    worker = app.worker()
    await worker.__aenter__()
    handle = await (stubborn if kind == "coroutine" else deaf).enqueue()
    await until(lambda: _is(handle, State.RUNNING))
    await handle.cancel()
    if kind == "coroutine":
        await reported.wait()
    else:
        await asyncio.sleep(3 * FAST.cancel_poll)
    try:
        async with asyncio.timeout(5):
            await worker.stop(grace=0.1)
    finally:
        over.set()
    assert await state_of(handle) is State.CANCELLED


async def _is(handle: Any, state: State) -> bool:
    return await state_of(handle) is state


async def test_a_start_hook_that_raises_leaves_no_thread_and_no_lease(app: Tidegate) -> None:
    @app.on_start
    async def broken() -> None:
        raise RuntimeError("no client today")

    with pytest.raises(RuntimeError, match="no client today"):
        async with app.worker():
            pass
    assert not [thread for thread in threading.enumerate() if thread.name == "tidegate-background"]
    assert await core_of(app).store.list_workers() == []


async def test_a_stop_hook_that_raises_leaks_no_thread_or_lease_and_the_other_hooks_run(
    app: Tidegate,
) -> None:
    stopped = []

    @app.on_stop
    def last() -> None:
        stopped.append("last")

    @app.on_stop
    def broken() -> None:
        raise RuntimeError("cannot close")

    @app.task(name="t")
    async def body() -> str:
        return "done"

    async with app.worker():
        handle = await body.enqueue()
        assert await handle.result(5) == "done"
    assert not [thread for thread in threading.enumerate() if thread.name == "tidegate-background"]
    assert await core_of(app).store.list_workers() == []
    assert stopped == ["last"]


async def test_a_stop_that_is_cancelled_midway_leaves_no_thread_and_no_lease(app: Tidegate) -> None:
    entered = asyncio.Event()

    @app.task(name="t")
    async def body() -> None:
        entered.set()
        await asyncio.sleep(30)

    worker = app.worker()
    await worker.__aenter__()
    handle = await body.enqueue()
    await entered.wait()
    stopping = asyncio.create_task(worker.stop(grace=20))
    await asyncio.sleep(0.05)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await stopping
    assert not [thread for thread in threading.enumerate() if thread.name == "tidegate-background"]
    assert await core_of(app).store.list_workers() == []
    assert await state_of(handle) is State.READY


async def test_a_second_stop_returns_at_once_and_breaks_nothing(app: Tidegate) -> None:
    @app.task(name="t")
    async def body() -> None:
        await asyncio.sleep(0.2)

    worker = app.worker()
    await worker.__aenter__()
    handle = await body.enqueue()
    await until(lambda: _is(handle, State.RUNNING))
    async with asyncio.timeout(5):
        await asyncio.gather(worker.stop(), worker.stop(), worker.stop())
        await worker.stop()
    assert await state_of(handle) is State.SUCCEEDED


async def test_the_application_may_be_closed_while_a_worker_runs(app: Tidegate) -> None:
    @app.task(name="t")
    async def body() -> None:
        await asyncio.sleep(0.01)

    async with app.worker():
        ids = []
        for _ in range(30):
            ids.append((await body.enqueue()).id)
            await app.aclose()
        rows = await all_final(app, ids)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.run for row in rows.values()} == {1}


async def test_the_tasks_of_a_worker_that_was_never_stopped_are_requeued(app: Tidegate) -> None:
    """An application that does not stop its worker and enters a new one loses no task."""
    runs = []

    @app.task(name="t")
    async def body(number: int) -> None:
        runs.append(number)

    first = app.worker()
    await first.__aenter__()
    async with app.worker():
        handles = [await body.enqueue(number) for number in range(50)]
        rows = await all_final(app, [handle.id for handle in handles])
    await first.stop()
    assert sorted(runs) == list(range(50))
    assert {row.state for row in rows.values()} <= FINAL


_SCRIPT = """
import asyncio, sys
from tidegate import Tidegate, Timings, Pool
app = Tidegate("sqlite:///" + sys.argv[1], pools=[Pool(poll_interval=0.05)])

@app.task(name="t")
async def body() -> None:
    print("started", flush=True)
    await asyncio.sleep(60)

async def main() -> None:
    async with app.worker():
        print((await body.enqueue()).id, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_ctrl_c_in_a_program_with_a_worker_releases_its_tasks_at_once(
    app: Tidegate, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "queue.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        reported = {program.stdout.readline().strip(), program.stdout.readline().strip()}
        program.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, errors = program.communicate(timeout=15)
    assert time.monotonic() - begin < 5
    assert errors.rstrip().endswith("KeyboardInterrupt")
    (task_id,) = reported - {"started"}
    row = await app.status(task_id)
    assert (row.state, row.releases, row.attempts) == (State.READY, 1, 0)
    assert await core_of(app).store.list_workers() == []
