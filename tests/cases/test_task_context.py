"""What a running task can use: retry, progress, scratch, publish, remaining time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from support import all_final, runs_of, until
from tidegate import Context, Fixed, Progress, State, TaskStopped, Tidegate
from tidegate.context import current_context

pytestmark = pytest.mark.anyio
QUICK = Fixed(0.01)


async def test_ctx_retry_makes_exactly_one_next_run_and_cannot_be_swallowed(app: Tidegate) -> None:
    seen: list[int] = []

    @app.task(name="t", max_attempts=3, backoff=QUICK)
    async def function(ctx: Context) -> str:
        seen.append(ctx.attempt)
        if len(seen) == 1:
            try:
                ctx.retry(after=0.02, reason="not ready", charge=False)
            except Exception:
                pytest.fail("an except Exception caught it")
        if len(seen) == 2:
            try:
                ctx.retry(reason="still not")
            except BaseException:
                return "swallowed all the same"
        return "done"

    async with app.worker():
        handle = await function.enqueue()
        assert await handle.result(10) == "done"
    assert seen == [1, 1, 2]
    assert [run.charge for run in await runs_of(handle)] == ["nothing", "attempt", ""]


async def test_ctx_retry_is_bounded_by_the_attempts_it_is_charged(app: Tidegate) -> None:
    @app.task(name="t", max_attempts=3, backoff=QUICK)
    async def function(ctx: Context) -> None:
        ctx.retry(reason="never ready")

    async with app.worker():
        handle = await function.enqueue()
        rows = await all_final(app, [handle.id])
    assert rows[handle.id].state is State.DEAD
    assert len(await runs_of(handle)) == 3


async def test_progress_is_seen_while_it_runs_and_after_the_end(app: Tidegate) -> None:
    go = asyncio.Event()

    @app.task(name="t")
    async def function(ctx: Context) -> None:
        ctx.progress(1, 4, "first quarter")
        await go.wait()
        ctx.progress(4, 4, "all")

    async with app.worker():
        handle = await function.enqueue()

        async def reported() -> Any:
            row = await handle.status()
            return row.progress == Progress(1, 4, "first quarter")

        await until(reported)
        go.set()
        await handle.result(5)
    row = await handle.status()
    assert row.progress == Progress(4, 4, "all")


async def test_scratch_is_the_runs_own_and_gone_afterwards_and_publish_is_whole_or_nothing(
    app: Tidegate, tmp_path: Path
) -> None:
    seen: list[Path] = []

    @app.task(name="t", max_attempts=2, backoff=QUICK)
    def function(ctx: Context) -> str:
        path = ctx.scratch() / "picture.png"
        seen.append(path)
        path.write_bytes(b"half")
        if ctx.run == 1:
            raise OSError("half written")
        path.write_bytes(b"whole")
        return str(ctx.publish(tmp_path / "picture.png"))

    async with app.worker():
        handle = await function.enqueue()
        assert await handle.result(10) == str(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes() == b"whole"
    assert seen[0] != seen[1]
    assert not any(path.exists() or path.parent.exists() for path in seen)
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


async def test_remaining_counts_down_to_the_nearer_limit(app: Tidegate) -> None:
    @app.task(name="t", timeout=60)
    async def function(ctx: Context) -> float:
        return ctx.remaining()

    async with app.worker():
        by_timeout = await (await function.enqueue()).result(5)
        by_deadline = await (await function.using(deadline=20).enqueue()).result(5)
    assert 58 < by_timeout <= 60
    assert 18 < by_deadline <= 20


async def test_a_plain_call_is_a_plain_call(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(ctx: Context, number: int, *, twice: bool = False) -> int:
        assert not ctx.cancelled()
        return number * (2 if twice else 1)

    @app.task(name="sync")
    def plain(number: int) -> int:
        return number + 1

    assert await function(3, twice=True) == 6
    assert await function(Context.detached(), 4) == 4
    assert plain(1) == 2


def test_a_stopped_function_cannot_publish() -> None:
    from tidegate.context import StopReason

    ctx = Context.detached()
    (ctx.scratch() / "f").write_text("x")
    ctx._control.stop = StopReason.LOST
    with pytest.raises(TaskStopped):
        ctx.publish(Path(os.devnull).parent / "f")
    ctx._control.remove_scratch()


async def test_current_context_returns_the_context_inside_a_run(app: Tidegate) -> None:
    def named(context: Context | None) -> tuple[str, int, str] | None:
        return None if context is None else (context.task_id, context.run, context.priority.word)

    @app.task(name="loop", priority="bulk")
    async def on_the_loop() -> list[tuple[str, int, str] | None]:
        here = named(current_context())
        return [here, *await asyncio.gather(*(as_task() for _ in range(2)))]

    async def as_task() -> tuple[str, int, str] | None:
        return named(current_context())

    @app.task(name="thread", runs_in="thread")
    def in_a_thread() -> tuple[str, int, str] | None:
        return named(current_context())

    async with app.worker():
        looped, threaded = await on_the_loop.enqueue(), await in_a_thread.enqueue()
        assert await looped.result(10) == [(looped.id, 1, "bulk")] * 3
        assert await threaded.result(10) == (threaded.id, 1, "normal")
    assert current_context() is None
