"""`ctx.gather` by the clock of a test: results in order, failures, and tasks that end at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidegate import Context, State, TaskCancelledError, TaskFailedError, Tidegate
from tidegate.errors import UsageError
from tidegate.testing import Kit

app = Tidegate("sqlite:///never-opened.db")
runs: list[str] = []


@app.task
async def draw(ctx: Context, item: int, wait: float = 0.0) -> int:
    if wait:
        await ctx.sleep(wait)
    runs.append(f"draw {item}")
    return item * item


@app.task(max_attempts=1)
async def fails() -> None:
    raise ValueError("no")


@app.task
async def draw_all(ctx: Context, count: int, wait: float = 0.0) -> list[int]:
    runs.append("parent")
    handles = [
        await draw.using(key=f"{ctx.task_id}:{item}").enqueue(item, wait * item)
        for item in range(1, count + 1)
    ]
    return await ctx.gather(handles)


@app.task
def draw_all_plainly(ctx: Context, count: int) -> list[int]:
    handles = [draw.using(key=f"{ctx.task_id}:{item}").enqueue_sync(item) for item in range(1, count + 1)]
    return ctx.gather_sync(handles)


@app.task(max_attempts=1)
async def with_a_failure(ctx: Context, *, return_exceptions: bool) -> list[Any]:
    good = await draw.using(key=f"{ctx.task_id}:good").enqueue(3)
    bad = await fails.using(key=f"{ctx.task_id}:bad").enqueue()
    found = await ctx.gather([bad, good, good], return_exceptions=return_exceptions)
    return [type(each).__name__ if isinstance(each, Exception) else each for each in found]


@app.task(max_attempts=1)
async def with_itself(ctx: Context) -> None:
    await ctx.gather([app.handle(ctx.task_id)])


@app.task(max_attempts=1)
async def with_no_handles(ctx: Context, kind: str) -> None:
    handle: Any = app.handle(ctx.task_id)
    await ctx.gather(
        {"id": [handle.id], "one": handle, "text": handle.id, "map": [draw.map_handle("x")]}[kind]
    )


@pytest.fixture
def kit() -> Iterator[Kit]:
    runs.clear()
    with Kit(app, raise_on_failure=False) as kit:
        yield kit


@pytest.mark.parametrize("function", [draw_all, draw_all_plainly])
def test_the_results_of_other_tasks_come_in_the_order_of_the_handles(kit: Kit, function: Any) -> None:
    handle = function.enqueue_sync(4)
    drained = kit.drain_sync(concurrency=1)
    assert handle.result_sync(1) == [1, 4, 9, 16]
    assert drained.suspended == 1


def test_the_parent_is_suspended_until_the_last_task_has_ended(kit: Kit) -> None:
    handle = draw_all.enqueue_sync(3, 3600.0)
    kit.drain_sync()
    kit.advance_sync("2h")
    assert runs == ["parent", "draw 1", "draw 2"]
    [parent] = kit.enqueued(draw_all)
    assert parent.state is State.SUSPENDED
    kit.advance_sync("61m")
    assert handle.result_sync(1) == [1, 4, 9]
    assert runs == ["parent", "draw 1", "draw 2", "draw 3", "parent"]


def test_gathering_no_task_returns_at_once(kit: Kit) -> None:
    handle = draw_all.enqueue_sync(0)
    assert kit.drain_sync().suspended == 0
    assert handle.result_sync(1) == []


def test_a_task_that_dies_raises_in_the_parent(kit: Kit) -> None:
    with_a_failure.enqueue_sync(return_exceptions=False)
    kit.drain_sync()
    drained = kit.advance_sync("2s") + kit.drain_sync()
    [parent] = kit.enqueued(with_a_failure)
    assert parent.state is State.DEAD
    del drained


def test_errors_are_returned_if_the_parent_asks_for_them(kit: Kit) -> None:
    handle = with_a_failure.enqueue_sync(return_exceptions=True)
    kit.drain_sync()
    assert handle.result_sync(1) == [TaskFailedError.__name__, 9, 9]


def test_a_task_that_is_cancelled_counts_as_ended(kit: Kit) -> None:
    handle = draw_all.enqueue_sync(1, 3600.0)
    kit.drain_sync()
    [child] = kit.enqueued(draw)
    app.handle(child.id).cancel_sync()
    [run] = kit.drain_sync().runs
    assert isinstance(run.error, TaskCancelledError)
    assert handle.status_sync().state is not State.SUSPENDED


def test_a_parent_that_is_cancelled_leaves_its_tasks_alone(kit: Kit) -> None:
    handle = draw_all.enqueue_sync(1, 3600.0)
    kit.drain_sync()
    handle.cancel_sync()
    kit.advance_sync("2h")
    assert runs == ["parent", "draw 1"]


def test_a_task_cannot_wait_for_itself(kit: Kit) -> None:
    with_itself.enqueue_sync()
    [run] = kit.drain_sync().failures
    assert isinstance(run.error, UsageError)


@pytest.mark.parametrize(
    ("kind", "shown"), [("id", "a str"), ("one", "a Handle"), ("text", "a str"), ("map", "a MapHandle")]
)
def test_what_is_no_list_of_handles_is_refused_with_what_to_pass(kit: Kit, kind: str, shown: str) -> None:
    with_no_handles.enqueue_sync(kind)
    [run] = kit.drain_sync().failures
    assert isinstance(run.error, UsageError)
    assert f"got {shown} → pass a list" in str(run.error)
