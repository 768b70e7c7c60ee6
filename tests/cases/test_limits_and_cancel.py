"""Time limits, cancelling, and one loop for all tasks."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support import FAST, all_final, make_app, runs_of, until
from tidegate import CancelStatus, Context, Fixed, State, TaskCancelledError, Tidegate

pytestmark = pytest.mark.anyio
QUICK = Fixed(0.01)


async def is_running(handle: Any) -> bool:
    return (await handle.status()).state is State.RUNNING


async def test_a_run_that_takes_too_long_is_stopped_charged_and_tried_again(app: Tidegate) -> None:
    cleaned = []

    @app.task(name="t", timeout=0.1, max_attempts=2, backoff=QUICK)
    async def function() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append(1)

    async with app.worker():
        handle = await function.enqueue()
        rows = await all_final(app, [handle.id])
    runs = await runs_of(handle)
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "timeout")
    assert [run.reason for run in runs] == ["timeout", "timeout"]
    assert "0.1 s" in runs[0].message
    assert cleaned == [1, 1]


@pytest.mark.parametrize("stubborn", ["swallows once", "swallows always", "shields", "raises another"])
async def test_a_function_that_ignores_its_time_limit_does_not_keep_its_run_open(
    app: Tidegate, stubborn: str
) -> None:
    release = asyncio.Event()

    @app.task(name="t", timeout=0.1, max_attempts=1)
    async def function() -> str:
        try:
            if stubborn == "shields":
                await asyncio.shield(asyncio.create_task(release.wait()))
            await release.wait()
        except asyncio.CancelledError:
            if stubborn == "raises another":
                raise ValueError("not me") from None
            while stubborn != "swallows once" and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
        return "a late success does not count"

    @app.task(name="neighbour")
    async def neighbour() -> str:
        await asyncio.sleep(0.3)
        return "untouched"

    async with app.worker():
        handle, beside = await function.enqueue(), await neighbour.enqueue()
        rows = await all_final(app, [handle.id, beside.id])
        release.set()
        assert await beside.result(5) == "untouched"
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "timeout")


async def test_a_cancelled_error_of_the_tasks_own_making_is_an_ordinary_failure(app: Tidegate) -> None:
    @app.task(name="t", max_attempts=2, backoff=QUICK)
    async def function() -> None:
        raise asyncio.CancelledError("from a library")

    async with app.worker():
        handle = await function.enqueue()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].state is State.DEAD
    assert len(await runs_of(handle)) == 2


async def test_the_total_timeout_of_a_task_ends_it_without_another_run(app: Tidegate) -> None:
    @app.task(name="t", total_timeout=0.2, max_attempts=50, backoff=Fixed(0.08))
    async def function() -> None:
        raise OSError("again")

    async with app.worker():
        handle = await function.enqueue()
        rows = await all_final(app, [handle.id])
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "deadline")
    assert 1 <= len(await runs_of(handle)) <= 5


async def test_a_task_past_the_deadline_its_caller_named_is_not_run(app: Tidegate) -> None:
    entered = []

    @app.task(name="t")
    async def function() -> None:
        entered.append(1)

    handles = [await function.using(deadline=0.05).enqueue() for _ in range(10)]
    await asyncio.sleep(0.06)
    async with app.worker():
        rows = await all_final(app, [handle.id for handle in handles])
    assert {(row.state, row.reason) for row in rows.values()} == {(State.DEAD, "deadline")}
    assert entered == []


async def test_a_total_timeout_named_at_the_enqueue_overrides_that_of_the_function(app: Tidegate) -> None:
    @app.task(name="t", total_timeout=0.2, max_attempts=2, backoff=Fixed(1.0))
    async def function() -> None:
        raise OSError("again")

    async with app.worker():
        short = await function.enqueue()
        long = await function.using(total_timeout="1h").enqueue()
        rows = await all_final(app, [short.id, long.id])
    assert (rows[short.id].reason, len(await runs_of(short))) == ("deadline", 1)
    assert "raise total_timeout=" in rows[short.id].message
    assert (rows[long.id].reason, len(await runs_of(long))) == ("unknown", 2)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_running_task_is_asked_to_stop_within_a_second(app: Tidegate, kind: str) -> None:
    async def function() -> None:
        await asyncio.sleep(30)

    def sync_function(ctx: Context) -> None:
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.01)

    function = app.task(name="t")(function if kind == "async" else sync_function)
    async with app.worker():
        handle = await function.enqueue()
        await until(lambda: is_running(handle))
        asked_at = time.monotonic()
        assert await handle.cancel("not needed") is CancelStatus.REQUESTED
        rows = await all_final(app, [handle.id])
        assert time.monotonic() - asked_at < 1.0
    assert rows[handle.id].state is State.CANCELLED
    assert await handle.cancel() is CancelStatus.FINISHED
    with pytest.raises(TaskCancelledError):
        await handle.result(1)


async def test_a_task_that_fails_after_its_cancel_is_not_tried_again(app: Tidegate) -> None:
    go = asyncio.Event()

    @app.task(name="t", backoff=QUICK)
    async def function() -> None:
        try:
            await go.wait()
        except asyncio.CancelledError:
            raise OSError("failed while stopping") from None

    async with app.worker():
        handle = await function.enqueue()
        await until(lambda: is_running(handle))
        await handle.cancel()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].state is State.CANCELLED
    assert len(await runs_of(handle)) == 1


async def test_cancelled_while_no_worker_is_up_never_runs(app: Tidegate) -> None:
    entered: list[int] = []

    @app.task(name="t")
    async def function(number: int) -> None:
        entered.append(number)

    handles = [
        await function.using(delay=0.01 if number % 4 == 0 else 0).enqueue(number) for number in range(40)
    ]
    for handle in handles[::2]:
        assert await handle.cancel() is CancelStatus.CANCELLED
    await app.aclose()
    async with app.worker():
        rows = await all_final(app, [handle.id for handle in handles])
    assert sorted(entered) == list(range(1, 40, 2))
    assert [rows[handle.id].state for handle in handles[::2]] == [State.CANCELLED] * 20


async def test_a_cancel_at_any_moment_ends_in_one_final_state_that_agrees_with_its_answer(
    app: Tidegate,
) -> None:
    ran: dict[str, int] = {}

    @app.task(name="t", backoff=QUICK)
    async def function(ctx: Context, number: int) -> None:
        ran[ctx.task_id] = ran.get(ctx.task_id, 0) + 1
        await asyncio.sleep(0.005)
        if number % 3 == 0 and ctx.run == 1:
            raise OSError("once more")

    async with app.worker():
        handles, answers = [], {}
        for number in range(300):
            handle = await function.enqueue(number)
            handles.append(handle)
            await asyncio.sleep((number % 10) / 1000)
            answers[handle.id] = await handle.cancel()
        rows = await all_final(app, [handle.id for handle in handles])
    assert len(set(answers.values())) > 1
    for task_id, answer in answers.items():
        state = rows[task_id].state
        if answer is CancelStatus.CANCELLED:
            assert state is State.CANCELLED
        elif answer is CancelStatus.FINISHED:
            assert state is State.SUCCEEDED
        else:
            assert state in {State.CANCELLED, State.SUCCEEDED}


async def test_all_tasks_of_a_process_share_one_loop_and_none_sees_anothers_variables(app: Tidegate) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)

    class Client:
        """Belongs to the first loop it sees, as many async clients do."""

        def __init__(self) -> None:
            self.loop: asyncio.AbstractEventLoop | None = None

        async def call(self) -> None:
            loop = asyncio.get_running_loop()
            self.loop = self.loop or loop
            assert loop is self.loop
            async with self.lock:
                await asyncio.sleep(0)

        lock = asyncio.Lock()

    client, opened = Client(), []
    app.on_start(lambda: opened.append(asyncio.get_running_loop()))
    app.on_stop(lambda: opened.append(asyncio.get_running_loop()))

    @app.task(name="t", backoff=QUICK)
    async def function(ctx: Context, number: int) -> int:
        assert variable.get() == -1
        variable.set(number)
        await client.call()
        if number % 5 == 0 and ctx.run == 1:
            raise OSError("once more")
        assert variable.get() == number
        return number

    @app.task(name="own_loop")
    def own_loop() -> int:
        return asyncio.run(asyncio.sleep(0, 7))

    async with app.worker():
        handles = [await function.enqueue(number) for number in range(50)]
        mixed = [await own_loop.enqueue() for _ in range(5)]
        assert [await handle.result(10) for handle in handles] == list(range(50))
        assert [await handle.result(10) for handle in mixed] == [7] * 5
    assert opened == [client.loop, client.loop]


async def test_an_unresponsive_thread_ends_its_run_and_keeps_its_slot_until_it_returns(
    tmp_path: Path,
) -> None:
    from tidegate import Pool

    application = make_app(tmp_path, pools=[Pool(concurrency=2, poll_interval=0.05)])
    let_go, started = threading.Event(), []

    @application.task(name="deaf", timeout=0.1, max_attempts=1)
    def deaf() -> None:
        started.append("deaf")
        let_go.wait(20)

    @application.task(name="normal")
    async def normal() -> str:
        return "fine"

    async with application.worker():
        deaf_ones = [await deaf.enqueue() for _ in range(2)]
        rows = await all_final(application, [handle.id for handle in deaf_ones])
        assert {row.reason for row in rows.values()} == {"timeout"}
        behind = await normal.enqueue()
        await asyncio.sleep(0.2)
        assert not await is_running(behind)
        assert (await behind.status()).state is State.READY
        let_go.set()
        assert await behind.result(5) == "fine"
    await application.aclose()


async def test_stopping_the_worker_releases_running_tasks_uncharged(app: Tidegate) -> None:
    from dataclasses import replace

    @app.task(name="t")
    async def function() -> None:
        await asyncio.sleep(30)

    async with app.worker(timings=replace(FAST, drain_grace=0.1)):
        handle = await function.enqueue()
        await until(lambda: is_running(handle))
    row = await handle.status()
    assert (row.state, row.attempts, row.releases) == (State.READY, 0, 1)
    assert (await runs_of(handle))[0].outcome == "released"


async def test_a_run_once_task_is_not_released_when_its_worker_stops(app: Tidegate) -> None:
    from dataclasses import replace

    @app.task(name="t", on_crash="fail")
    async def function() -> None:
        begun.set()
        await asyncio.sleep(30)

    begun = asyncio.Event()
    async with app.worker(timings=replace(FAST, drain_grace=0.1)):
        handle = await function.enqueue()
        await asyncio.wait_for(begun.wait(), 20)
    row = await handle.status()
    assert (row.state, row.run) == (State.DEAD, 1)
    assert (row.attempts, row.crashes, row.releases) == (0, 0, 1)
    (run,) = await runs_of(handle)
    assert 'on_crash="fail" lets it run once only' in run.why
