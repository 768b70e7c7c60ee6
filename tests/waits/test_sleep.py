"""`ctx.sleep` by the clock of a test: when the task wakes, what is charged, and what ends the sleep early."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tidegate import Context, State, Tidegate
from tidegate.errors import OptionError
from tidegate.testing import Kit

app = Tidegate("sqlite:///never-opened.db")
done: list[Any] = []


async def note(what: str) -> str:
    done.append(what)
    return what


@app.task
async def reminder(ctx: Context, duration: str = "2h") -> str:
    await ctx.step("ask", note, "asked")
    await ctx.sleep(duration)
    return await ctx.step("remind", note, "reminded")


@app.task
def plain_reminder(ctx: Context) -> str:
    ctx.sleep_sync("2h")
    done.append("reminded")
    return "done"


@app.task
async def two_sleeps(ctx: Context) -> str:
    await ctx.sleep("1h")
    await ctx.step("between", note, "between")
    await ctx.sleep("1h")
    return "done"


@app.task
async def sleeps_side_by_side(ctx: Context) -> str:
    async def one(name: str, duration: str) -> None:
        await ctx.sleep(duration, key=name)
        await ctx.step(name, note, name)

    await asyncio.gather(one("late", "3h"), one("early", "1h"))
    return "done"


@app.task
async def random_sleep(ctx: Context) -> str:
    await ctx.sleep(3600.0 + ctx.run)
    return "done"


@app.task
async def until_a_moment(ctx: Context) -> str:
    await ctx.sleep(seconds_left())
    await ctx.sleep(timedelta(seconds=seconds_left()))
    return "done"


def seconds_left() -> float:
    """Replaced by a test."""
    raise NotImplementedError


@app.task
async def beside_other_work(ctx: Context) -> str:
    async def work() -> None:
        for number in range(3):
            await ctx.step("work", note, str(number))
            await asyncio.sleep(0)

    await asyncio.gather(ctx.sleep("1h"), work())
    return "done"


@app.task
async def inside_a_step(ctx: Context) -> str:
    async def pause() -> str:
        await ctx.sleep("1m")
        return await note("paused")

    return await ctx.step("pause", pause)


@app.task(max_attempts=2, backoff="1m")
async def fails_after_its_sleep(ctx: Context) -> str:
    await ctx.sleep("1h")
    if ctx.attempt == 1:
        raise ConnectionError("gone")
    return "done"


@app.task(total_timeout="1h")
async def with_a_total_timeout(ctx: Context) -> str:
    await ctx.sleep("10h")
    return "done"


@app.task
async def swallows(ctx: Context) -> str:
    with contextlib.suppress(BaseException):
        await ctx.sleep("1h")
    return "too early"


@pytest.fixture
def kit() -> Iterator[Kit]:
    done.clear()
    with Kit(app) as kit:
        yield kit


def state(kit: Kit) -> State:
    [task] = kit.enqueued()
    return task.state


def test_a_sleeping_task_is_suspended_until_the_time_has_passed(kit: Kit) -> None:
    reminder.enqueue_sync()
    assert kit.drain_sync().suspended == 1
    assert (state(kit), done) == (State.SUSPENDED, ["asked"])
    kit.advance_sync("119m")
    assert (state(kit), done) == (State.SUSPENDED, ["asked"])
    assert kit.advance_sync("1m").succeeded == 1
    assert done == ["asked", "reminded"]


def test_a_plain_function_sleeps_without_a_slot_too(kit: Kit) -> None:
    plain_reminder.enqueue_sync()
    assert kit.drain_sync().suspended == 1
    assert kit.advance_sync("2h").succeeded == 1
    assert done == ["reminded"]


def test_a_short_sleep_keeps_the_run(kit: Kit) -> None:
    reminder.enqueue_sync("4s")
    drained = kit.drain_sync()
    assert (drained.suspended, drained.succeeded) == (0, 1)


def test_sleeps_of_one_task_follow_one_another(kit: Kit) -> None:
    two_sleeps.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync("61m")
    assert (state(kit), done) == (State.SUSPENDED, ["between"])
    kit.advance_sync("58m")
    assert state(kit) is State.SUSPENDED
    kit.advance_sync("2m")
    assert (state(kit), done) == (State.SUCCEEDED, ["between"])


def test_the_first_of_several_sleeps_wakes_the_task(kit: Kit) -> None:
    sleeps_side_by_side.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync("61m")
    assert (state(kit), done) == (State.SUSPENDED, ["early"])
    kit.advance_sync("2h")
    assert (state(kit), done) == (State.SUCCEEDED, ["early", "late"])


def test_a_sleep_whose_duration_differs_in_each_run_ends(kit: Kit) -> None:
    random_sleep.enqueue_sync()
    drained = kit.drain_sync() + kit.advance_sync("2h")
    assert (drained.suspended, drained.succeeded) == (1, 1)


def test_a_sleep_until_a_moment_is_over_in_the_run_that_it_woke(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = kit.now().timestamp() + 3600.0
    monkeypatch.setitem(globals(), "seconds_left", lambda: moment - kit.now().timestamp() - 1.0)
    until_a_moment.enqueue_sync()
    drained = kit.drain_sync() + kit.advance_sync("2h")
    assert [run.outcome for run in drained.runs] == ["suspended", "succeeded"]


def test_steps_beside_a_sleep_are_all_done_before_the_task_is_suspended(kit: Kit) -> None:
    beside_other_work.enqueue_sync()
    assert kit.drain_sync().suspended == 1
    assert done == ["0", "1", "2"]
    assert kit.advance_sync("1h").succeeded == 1
    assert done == ["0", "1", "2"]


def test_a_sleep_inside_a_step_keeps_its_slot(kit: Kit) -> None:
    inside_a_step.enqueue_sync()
    drained = kit.drain_sync()
    assert (drained.suspended, drained.succeeded) == (0, 1)
    assert done == ["paused"]


def test_a_run_that_fails_after_the_sleep_does_not_sleep_again(kit: Kit) -> None:
    fails_after_its_sleep.enqueue_sync()
    drained = kit.drain_sync() + kit.advance_sync("62m")
    assert [run.outcome for run in drained.runs] == ["suspended", "retrying", "succeeded"]


def test_a_sleep_may_be_longer_than_the_total_timeout(kit: Kit) -> None:
    with_a_total_timeout.enqueue_sync()
    drained = kit.drain_sync() + kit.advance_sync("11h")
    assert [run.outcome for run in drained.runs] == ["suspended", "succeeded"]


def test_a_sleep_past_the_deadline_ends_at_the_deadline(kit: Kit) -> None:
    reminder.using(deadline="1h").enqueue_sync("10h")
    kit.drain_sync()
    kit.advance_sync("59m")
    assert state(kit) is State.SUSPENDED
    assert kit.advance_sync("2m", raise_on_failure=False).dead == 1
    assert done == ["asked"]


def test_a_function_that_swallows_the_suspension_is_suspended_all_the_same(kit: Kit) -> None:
    swallows.enqueue_sync()
    assert kit.drain_sync().suspended == 1
    assert kit.advance_sync("1h").succeeded == 1


def test_a_suspended_task_is_cancelled_at_once(kit: Kit) -> None:
    handle = reminder.enqueue_sync()
    kit.drain_sync()
    handle.cancel_sync()
    assert state(kit) is State.CANCELLED


@pytest.mark.parametrize("duration", ["soon", "-1s", "400d"])
def test_an_invalid_duration_is_refused(kit: Kit, duration: str) -> None:
    reminder.enqueue_sync(duration)
    [run] = kit.drain_sync(raise_on_failure=False).failures
    assert isinstance(run.error, OptionError)


@pytest.mark.anyio
async def test_a_plain_call_sleeps_for_as_long() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Context.detached().sleep(0.05)
    assert loop.time() - began >= 0.05
