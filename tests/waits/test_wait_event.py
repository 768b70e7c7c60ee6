"""`ctx.wait_event` by the clock of a test: sent before, meanwhile and never, and what a later run gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from tidegate import Context, State, Tidegate
from tidegate.errors import EventTimeoutError, OptionError, UsageError
from tidegate.testing import Kit

app = Tidegate("sqlite:///never-opened.db")
got: list[Any] = []


@app.task
async def ship(ctx: Context, order: int) -> Any:
    return await ctx.wait_event(f"order:{order}:paid", timeout="2d")


@app.task
def ship_plainly(ctx: Context, order: int) -> Any:
    return ctx.wait_event_sync(f"order:{order}:paid")


@app.task(max_attempts=2, backoff="1m")
async def fails_once_after_the_event(ctx: Context) -> Any:
    got.append(await ctx.wait_event("go"))
    if ctx.attempt == 1:
        raise ConnectionError("gone")
    return got


@app.task
async def two_events(ctx: Context) -> Any:
    return [await ctx.wait_event("go"), await ctx.wait_event("go")]


@app.task
async def one_key(ctx: Context) -> Any:
    return [await ctx.wait_event("go", key="a"), await ctx.wait_event("go", key="a")]


@app.task
async def two_names(ctx: Context) -> Any:
    return await asyncio.gather(ctx.wait_event("left"), ctx.wait_event("right"))


@app.task
async def event_or_time(ctx: Context) -> str:
    try:
        await ctx.wait_event("go", timeout="1h")
    except EventTimeoutError as late:
        return f"no {late.event}"
    return "went"


@app.task
async def event_beside_a_sleep(ctx: Context) -> Any:
    _, data = await asyncio.gather(ctx.sleep("1h"), ctx.wait_event("go"))
    return data


@app.task
async def inside_a_step(ctx: Context) -> Any:
    async def wait() -> Any:
        return await ctx.wait_event("go")

    return await ctx.step("wait", wait)


@pytest.fixture
def kit() -> Iterator[Kit]:
    got.clear()
    with Kit(app) as kit:
        yield kit


def states(kit: Kit) -> list[State]:
    return [task.state for task in kit.enqueued()]


@pytest.mark.parametrize("function", [ship, ship_plainly])
def test_a_task_is_suspended_until_its_event_is_sent(kit: Kit, function: Any) -> None:
    handle = function.enqueue_sync(7)
    assert kit.drain_sync().suspended == 1
    assert app.send_event_sync("order:8:paid") == 0
    kit.drain_sync()
    assert states(kit) == [State.SUSPENDED]
    assert app.send_event_sync("order:7:paid", {"cents": 5}) == 1
    assert kit.drain_sync().succeeded == 1
    assert handle.result_sync(1) == {"cents": 5}


def test_an_event_that_was_sent_before_is_received_at_once(kit: Kit) -> None:
    assert app.send_event_sync("order:7:paid", "early") == 0
    handle = ship.enqueue_sync(7)
    drained = kit.drain_sync()
    assert (drained.suspended, drained.succeeded) == (0, 1)
    assert handle.result_sync(1) == "early"


def test_an_event_is_kept_for_seven_days(kit: Kit) -> None:
    app.send_event_sync("order:7:paid", "kept")
    app.send_event_sync("order:8:paid", "gone", keep="1h")
    kit.advance_sync("6d")
    ship.enqueue_sync(7)
    ship.enqueue_sync(8)
    drained = kit.drain_sync()
    assert (drained.suspended, drained.succeeded) == (1, 1)


def test_every_task_that_waits_gets_the_event(kit: Kit) -> None:
    handles = [ship.enqueue_sync(7) for _ in range(3)]
    kit.drain_sync()
    assert app.send_event_sync("order:7:paid", 1) == 3
    kit.drain_sync()
    assert [handle.result_sync(1) for handle in handles] == [1, 1, 1]


def test_a_wait_that_times_out_makes_the_task_a_dead_letter(kit: Kit) -> None:
    ship.enqueue_sync(7)
    kit.drain_sync()
    drained = kit.advance_sync("49h", raise_on_failure=False)
    assert [(run.outcome, run.reason) for run in drained.runs] == [("dead", "timeout")]
    assert isinstance(drained.runs[0].error, EventTimeoutError)


def test_a_function_may_handle_the_time_out(kit: Kit) -> None:
    handle = event_or_time.enqueue_sync()
    kit.drain_sync()
    kit.advance_sync("61m")
    assert handle.result_sync(1) == "no go"


def test_a_later_run_gets_the_recorded_event(kit: Kit) -> None:
    fails_once_after_the_event.enqueue_sync()
    app.send_event_sync("go", 1)
    app.send_event_sync("go", 2)
    kit.drain_sync()
    kit.advance_sync("2m")
    assert got == [1, 1]


def test_equal_waits_of_a_task_get_one_event_each(kit: Kit) -> None:
    handle = two_events.enqueue_sync()
    kit.drain_sync()
    app.send_event_sync("go", 1)
    assert kit.drain_sync().suspended == 1
    app.send_event_sync("go", 2)
    kit.drain_sync()
    assert handle.result_sync(1) == [1, 2]


def test_waits_with_one_key_are_the_same_wait(kit: Kit) -> None:
    handle = one_key.enqueue_sync()
    app.send_event_sync("go", 1)
    app.send_event_sync("go", 2)
    kit.drain_sync()
    assert handle.result_sync(1) == [1, 1]


def test_an_event_with_the_key_of_an_earlier_one_is_the_same(kit: Kit) -> None:
    two_events.enqueue_sync()
    kit.drain_sync()
    assert app.send_event_sync("go", 1, key="evt_1") == 1
    assert app.send_event_sync("go", 1, key="evt_1") == 0
    kit.drain_sync()
    assert states(kit) == [State.SUSPENDED]


def test_waits_side_by_side_each_wake_the_task(kit: Kit) -> None:
    handle = two_names.enqueue_sync()
    kit.drain_sync()
    app.send_event_sync("right", "r")
    assert kit.drain_sync().suspended == 1
    app.send_event_sync("left", "l")
    kit.drain_sync()
    assert handle.result_sync(1) == ["l", "r"]


def test_an_event_beside_a_sleep_is_received_and_the_sleep_goes_on(kit: Kit) -> None:
    handle = event_beside_a_sleep.enqueue_sync()
    kit.drain_sync()
    app.send_event_sync("go", "data")
    assert kit.drain_sync().suspended == 1
    kit.advance_sync("61m")
    assert handle.result_sync(1) == "data"


def test_events_of_another_tenant_wake_nobody(kit: Kit) -> None:
    ship.using(tenant="acme").enqueue_sync(7)
    kit.drain_sync()
    assert app.send_event_sync("order:7:paid", tenant="other") == 0
    assert app.send_event_sync("order:7:paid") == 0
    assert app.send_event_sync("order:7:paid", tenant="acme") == 1


def test_values_beyond_json_arrive_as_they_were_sent(kit: Kit) -> None:
    handle = ship.enqueue_sync(7)
    app.send_event_sync("order:7:paid", date(2026, 1, 2))
    kit.drain_sync()
    assert handle.result_sync(1) == date(2026, 1, 2)


def test_a_wait_inside_a_step_is_refused(kit: Kit) -> None:
    inside_a_step.enqueue_sync()
    [run] = kit.drain_sync(raise_on_failure=False).failures
    assert isinstance(run.error, UsageError)


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_an_invalid_name_is_refused(kit: Kit, name: str) -> None:
    with pytest.raises(OptionError):
        app.send_event_sync(name)
