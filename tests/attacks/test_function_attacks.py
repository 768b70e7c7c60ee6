"""Functions, results and signatures that break the worker's code: the run ends and its slot is free."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

import pytest

from support import FAST, all_final, make_app
from tidegate import NO_LIMIT, Context, Pool, State, Tidegate
from tidegate.codec import CODEC
from tidegate.context import RunControl
from tidegate.domain.spec import Priority
from tidegate.internals import core_of
from tidegate.store.rows import NewTask

pytestmark = pytest.mark.anyio


def by_hand(app: Tidegate, name: str, args: bytes = b'{"a":[],"k":{"x":1}}') -> NewTask:
    """Return a task as another version might have stored it."""
    return NewTask(core_of(app).next_id(), name, "default", Priority.NORMAL, args, CODEC)


async def test_a_signature_that_cannot_be_read_ends_the_run_and_frees_its_slot(tmp_path: Path) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])

    @app.task(name="broken", timeout=NO_LIMIT, total_timeout=NO_LIMIT, max_attempts=1)
    async def broken(x: NoSuchClass) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    @app.task(name="fine")
    async def fine() -> str:
        return "done"

    async with app.worker():
        task = by_hand(app, "broken")
        await core_of(app).enqueue_prepared(task)
        rows = await all_final(app, [task.id], within=8)
        assert rows[task.id].state is State.DEAD
        assert await (await fine.enqueue()).result(5) == "done"
    await app.aclose()


class Hostile:
    """A value that raises a BaseException at every access."""

    def __iter__(self) -> Any:
        raise KeyboardInterrupt

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


@dataclasses.dataclass
class Sly:
    """Arguments whose class raises when they are decoded."""

    x: int

    def __post_init__(self) -> None:
        if self.x == 666:
            raise GeneratorExit


@pytest.mark.parametrize("how", ["result", "arguments", "cancels itself", "nested deep", "huge", "generator"])
async def test_odd_arguments_and_results_never_leak_a_slot(tmp_path: Path, how: str) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])

    @app.task(name="body", timeout=NO_LIMIT, total_timeout=NO_LIMIT, max_attempts=1)
    async def body(x: Sly) -> Any:
        if how == "result":
            return Hostile()
        if how == "cancels itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if how == "nested deep":
            return functools.reduce(lambda inner, _: [inner], range(100_000), 1)
        if how == "huge":
            return "x" * 5_000_000
        if how == "generator":
            return (number for number in range(3))
        return None

    @app.task(name="fine")
    async def fine() -> str:
        return "done"

    async with app.worker():
        number = 666 if how == "arguments" else 1
        task = by_hand(app, "body", b'{"a":[],"k":{"x":{"x":%d}}}' % number)
        await core_of(app).enqueue_prepared(task)
        rows = await all_final(app, [task.id], within=8)
        assert rows[task.id].state in (State.SUCCEEDED, State.DEAD)
        assert await (await fine.enqueue()).result(5) == "done"
    await app.aclose()


async def test_every_slot_is_free_after_a_thousand_odd_outcomes(tmp_path: Path) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=7, poll_interval=0.02)])

    @app.task(name="odd", timeout=0.05, max_attempts=1)
    async def odd(ctx: Context, x: int) -> Any:
        if x % 5 == 0:
            raise [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit][
                x % 25 // 5
            ]
        if x % 5 == 1:
            ctx.retry(after=0)
        if x % 5 == 2:
            await asyncio.sleep(1)
        if x % 5 == 3:
            return object()
        return x

    async with app.worker():
        ids = await app.enqueue_many(odd.prepare(number) for number in range(300))
        rows = await all_final(app, ids, within=40)
        assert {row.state for row in rows.values()} == {State.SUCCEEDED, State.DEAD}
        assert await core_of(app).store.get_queue_stats() != []
        handles = [await odd.enqueue(4) for _ in range(50)]
        assert [await handle.result(10) for handle in handles] == [4] * 50
    assert FAST.lease < 1
    await app.aclose()


async def test_a_large_scratch_directory_is_removed_in_a_thread(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunControl.remove_scratch

    def slow(control: RunControl) -> None:
        time.sleep(0.6)
        real(control)

    @app.task(name="t")
    async def body(ctx: Context) -> str:
        (ctx.scratch() / "many files").write_text("x")
        return str(ctx.scratch())

    monkeypatch.setattr(RunControl, "remove_scratch", slow)
    async with app.worker():
        handle = await body.enqueue()
        waiting = asyncio.create_task(handle.result(10))
        longest = 0.0
        while not waiting.done():
            begin = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begin)
        assert not Path(await waiting).exists()
    assert longest < 0.5
